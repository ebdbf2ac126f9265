"""`python -m fumehood_server` is `fumehood`."""

from fumehood_server.cli import main

if __name__ == "__main__":
    main()

"""The journal in a PostgreSQL database, which several sidecars may share. It takes psycopg, an extra of the server."""

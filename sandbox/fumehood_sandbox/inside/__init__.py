"""Stages: what runs by `python -I -S` between the launcher and the program. Imports nothing of ours but `kernel`.

A stage's source is compiled outside and handed over by a descriptor (`outside/stage_files.py`), since nothing of this
package lies in the sandbox. Whatever a stage imports besides costs each start.
"""

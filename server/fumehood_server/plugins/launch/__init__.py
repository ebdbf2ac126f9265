"""From a manifest to what is launched for it: the program, its files, its environment."""

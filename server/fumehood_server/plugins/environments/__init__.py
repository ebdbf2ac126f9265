"""Packages of Python plugins: declared, locked with hashes, installed outside the plugin's folder, verified."""

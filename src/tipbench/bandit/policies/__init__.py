"""The policies that can be asked for by name; one file each."""

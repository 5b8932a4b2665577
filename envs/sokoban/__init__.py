"""Sokoban: rooms by reverse play, level files, an optimal solver."""

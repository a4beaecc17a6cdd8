"""Subprocess hooks: what they are called, what they are told, how they are started, watched and understood."""

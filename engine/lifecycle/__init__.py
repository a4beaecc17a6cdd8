"""Lifecycle jobs: a page watched on an interval, shaped by hooks."""

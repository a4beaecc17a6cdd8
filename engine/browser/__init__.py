"""Chromium, driven through Playwright in a process of its own (the extra ``browser``)."""

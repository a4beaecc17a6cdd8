"""What site authors work with: scaffolding, checking, testing, and a prompt on a page.

Everything here is a client of the engine: it composes what :mod:`engine.app` offers and adds no behaviour to it.
"""

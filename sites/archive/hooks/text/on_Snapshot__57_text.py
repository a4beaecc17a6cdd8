#!/usr/bin/env python3
"""The page's text, which a search finds the snapshot by."""

import sys
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import done, page

UNSEEN = {"script", "style", "template", "noscript", "title"}


class Text(HTMLParser):
    """Collects what a reader would see."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.unseen = 0

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.unseen += tag in UNSEEN

    def handle_endtag(self, tag: str) -> None:
        self.unseen -= tag in UNSEEN and self.unseen > 0

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            self.words.extend(data.split())


text = Text()
text.feed(page())
if not text.words:
    done("noresults", "no text")
Path("page.txt").write_text(" ".join(text.words))
done("succeeded", "text/page.txt")

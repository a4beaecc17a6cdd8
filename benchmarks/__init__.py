"""Speed, measured beside the peers. Run by ``make bench``; nothing of it runs in the test suite."""

"""Text data: a corpus, its vocabulary, its token ids on disk, and streams of windows over them."""

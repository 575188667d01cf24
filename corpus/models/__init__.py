"""The models of the corpus, by what they are from or for."""

"""Generate the test vectors of this project in spec/vectors; `FILES` names them.

``python -m tests.vectors.generate`` writes them; a test compares them with what it would write.
Each module makes one group of files out of examples that it lists and the project's own encoders.
"""

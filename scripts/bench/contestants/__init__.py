"""The parts of ``scripts/bench/peers.py``: what is asked, who is asked, and how it is measured.

``programs/`` holds what runs inside a contestant's own environment, which knows nothing of localeval; the folder is
apart from the modules here, which must not stand before the contestants' own packages.
"""

"""Library of `device.py`. It requires Python 3.8 and no installed package of Saccade."""

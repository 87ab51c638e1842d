"""What `device.py` is made of. It runs where nothing of ours is installed, on any Python from 3.8 on."""

"""`python -m slipstream`, and so `torchrun -m slipstream doctor train.py`."""

from slipstream.cli.main import main

if __name__ == "__main__":
    main()

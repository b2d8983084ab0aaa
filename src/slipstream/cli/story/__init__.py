"""The story that `slipstream demo` tells, and the script in it."""

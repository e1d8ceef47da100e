"""What an injection makes a target run: bootstrap code, payload, and the directory of both."""

"""What all tests need."""

import signal

# A shell that starts this in the background lets it ignore Ctrl-C, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

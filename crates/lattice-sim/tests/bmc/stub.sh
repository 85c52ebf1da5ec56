#!/bin/sh
# A tool of a test: does what the file beside it says, which a test may write at any time.
. "$0.script"

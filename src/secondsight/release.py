"""Name the version of this package, for the package itself and for whoever asks a running part."""

VERSION = "0.1.0"

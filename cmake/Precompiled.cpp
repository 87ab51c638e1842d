// Exists to own the precompiled header that the compiler's targets share.

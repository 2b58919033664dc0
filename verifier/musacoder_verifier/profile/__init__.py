"""Why a kernel is as fast as it is: counted work, measured ceilings, the compiler's report."""

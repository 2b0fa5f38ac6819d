"""The comparison in C++: heavy_hitters.cpp, its build, and how the peer's headers are found."""

"""The comparison in C++: heavy_hitters.cpp, its build, and where the headers of its peer come from."""

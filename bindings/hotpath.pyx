# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language = c++
"""Routing a single record, where call overhead is the cost.

A Router hands its twin a capsule that owns a shared pointer to the compiled router; the twin hashes one
value and looks it up without an array in between.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1


cdef extern from "<memory>" namespace "std" nogil:
    cdef cppclass shared_ptr[T]:
        T* get()


cdef extern from "hash.hpp" namespace "pyroute" nogil:
    uint64_t hash_int64(int64_t value, uint64_t seed)
    uint64_t hash_bytes(const char* data, size_t size, uint64_t seed)


cdef extern from "route/router.hpp" namespace "pyroute" nogil:
    cdef cppclass Router "const pyroute::Router":
        int32_t route_one(uint64_t key)


cdef class OneRecord:
    """Routes one value; `slow` answers for the values that have no short way."""

    cdef object capsule
    cdef object slow
    cdef Router* router

    def __init__(self, capsule, slow):
        self.capsule = capsule
        self.slow = slow
        self.router = (<shared_ptr[Router]*>PyCapsule_GetPointer(capsule, "pyroute.router")).get()

    def route(self, value):
        cdef int overflow = 0
        cdef long long number
        cdef Py_ssize_t size
        cdef const char* text
        if PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow == 0:
                return self.router.route_one(hash_int64(number, 42))
        elif PyUnicode_CheckExact(value):
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:
                return self.slow(value)
            return self.router.route_one(hash_bytes(text, <size_t>size, 42))
        elif PyBytes_CheckExact(value):
            return self.router.route_one(
                hash_bytes(PyBytes_AS_STRING(value), <size_t>PyBytes_GET_SIZE(value), 42)
            )
        elif value is None:
            return self.router.route_one(42)
        return self.slow(value)

# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language = c++
"""The native loop of a RouterShellBolt's child: frames in, frames out, the GIL released.

The doors are those of `_storm_loop`: a loop between two pipes, and the same without I/O.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EINTR, EPIPE, errno
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import os
import struct
import time

from pyroute._storm_loop import CLOSED, INTERRUPTED, MESSAGE, TIMEOUT, TOO_LONG, UNREAD


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll"(pollfd* fds, unsigned long count, int timeout)
    short POLLIN


cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read"(int fd, void* to, size_t size)
    ssize_t c_write "write"(int fd, const void* data, size_t size)


cdef extern from *:
    """
    #include "errors.hpp"
    #include "storm/frames.hpp"

    namespace {
    void storm_frames_raise() {
      try {
        throw;
      } catch (const pyroute::FormatError& error) {
        PyObject* const core = PyImport_ImportModule("pyroute._core");
        PyObject* const kind = core ? PyObject_GetAttrString(core, "FormatError") : nullptr;
        if (kind) PyErr_SetString(kind, error.what());
        Py_XDECREF(kind);
        Py_XDECREF(core);
      } catch (const pyroute::TypeMismatch& error) {
        PyErr_SetString(PyExc_TypeError, error.what());
      } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
      } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
      } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
      }
    }

    void storm_frames_set_router(pyroute::FrameRouter& to, void* capsule,
                                 const std::vector<std::int32_t>& tasks) {
      to.set_router(*static_cast<std::shared_ptr<const pyroute::Router>*>(capsule), tasks);
    }

    struct StormFramesStep {
      std::size_t consumed, begin, size;
      bool handed_back;
    };
    StormFramesStep storm_frames_consume(pyroute::FrameRouter& router, const char* data,
                                         std::size_t size, std::string& out) {
      const auto [consumed, message] = router.consume({data, size}, out);
      const bool handed_back = message.data() != nullptr;
      return {consumed, handed_back ? static_cast<std::size_t>(message.data() - data) : 0,
              message.size(), handed_back};
    }
    StormFramesStep storm_frames_consume_copy(pyroute::FrameRouter& router, const char* data,
                                              std::size_t size, std::string& out) {
      // A buffer of exactly this size, so that a sanitizer sees the first byte beyond it.
      const std::unique_ptr<char[]> copy(new char[size]);
      if (size > 0) std::memcpy(copy.get(), data, size);
      return storm_frames_consume(router, copy.get(), size, out);
    }

    std::vector<std::string> storm_frames_statistics(pyroute::FrameRouter& router, bool reset) {
      std::vector<std::string> parts;
      if (!router.statistics()) return parts;
      for (const pyroute::SpaceSaving& part : router.statistics()->parts())
        parts.push_back(part.to_bytes());
      if (reset) router.statistics()->reset();
      return parts;
    }

    void storm_frames_add(pyroute::FrameRouter& router, const std::string& part) {
      if (router.statistics()) router.statistics()->merge(pyroute::SpaceSaving::from_bytes(part));
    }
    }  // namespace
    """
    void storm_frames_raise()
    cdef cppclass CRouter "pyroute::FrameRouter":
        CRouter(size_t) except +storm_frames_raise
        uint64_t records()
    cdef struct Step "StormFramesStep":
        size_t consumed
        size_t begin
        size_t size
        cbool handed_back
    void set_router "storm_frames_set_router"(CRouter&, void*, const vector[int32_t]&) except +storm_frames_raise
    Step consume "storm_frames_consume"(CRouter&, const char*, size_t, string&) except +storm_frames_raise nogil
    Step consume_copy "storm_frames_consume_copy"(
        CRouter&, const char*, size_t, string&) except +storm_frames_raise nogil
    vector[string] statistics_of "storm_frames_statistics"(CRouter&, cbool) except +storm_frames_raise
    void add_statistics "storm_frames_add"(CRouter&, const string&) except +storm_frames_raise


cdef class Frames:
    """Routes records in bytes, without I/O: what the loop does between its reads and writes."""

    cdef CRouter* router
    cdef cbool ready

    def __cinit__(self, *, size_t capacity=0):
        self.router = new CRouter(capacity)

    def __dealloc__(self):
        del self.router

    def set_router(self, capsule, tasks):
        """The router, and Storm's ids of its tasks, ascending."""
        set_router(self.router[0], PyCapsule_GetPointer(capsule, "pyroute.router"), tasks)
        self.ready = True

    def consume(self, bytes data not None):
        """Returns (output, bytes done with, message handed back or None)."""
        cdef string out
        cdef Step done
        cdef const char* start = data
        cdef size_t size = <size_t>len(data)
        if not self.ready:
            raise ValueError("router: expected set_router first, got none")
        with nogil:
            done = consume_copy(self.router[0], start, size, out)
        message = start[done.begin:done.begin + done.size] if done.handed_back else None
        return out, done.consumed, message

    def statistics(self):
        """Bytes of the statistics, a SpaceSaving for each type of keys."""
        return statistics_of(self.router[0], False)

    @property
    def records(self):
        return self.router.records()


cdef class FrameLoop:
    """The loop between two file descriptors."""

    cdef CRouter* router
    cdef int reads, writes
    cdef size_t max_message, begin
    cdef cbool ready
    cdef string pending
    cdef string output

    def __cinit__(self, int reads, int writes, *, size_t capacity=0, size_t max_message=1 << 28):
        self.router = new CRouter(capacity)
        self.reads = reads
        self.writes = writes
        self.max_message = max_message

    def __dealloc__(self):
        del self.router

    def set_router(self, capsule, tasks):
        """The router, and Storm's ids of its tasks, ascending."""
        set_router(self.router[0], PyCapsule_GetPointer(capsule, "pyroute.router"), tasks)
        self.ready = True

    def push(self, bytes data not None):
        """Bytes that were read before the loop began."""
        cdef const char* start = data
        self.pending.append(start, <size_t>len(data))

    def run(self, double timeout=-1.0):
        """Route until something else is to be done; returns what, and a message where it is one."""
        cdef Step step
        cdef int why
        if not self.ready:
            raise ValueError("router: expected set_router first, got none")
        cdef double deadline = time.monotonic() + timeout
        while True:
            message = None
            if self.begin < self.pending.size():
                with nogil:
                    step = consume(
                        self.router[0], self.pending.data() + self.begin, self.pending.size() - self.begin, self.output
                    )
                if step.handed_back:
                    message = (self.pending.data() + self.begin + step.begin)[:step.size]
                self.begin += step.consumed
            if self.output.size() and not self._write():
                return UNREAD, None
            if message is not None:
                return MESSAGE, message
            if self.left > self.max_message:
                return TOO_LONG, None
            why = self._read(-1 if timeout < 0 else max(0, int((deadline - time.monotonic()) * 1000 + 0.5)))
            if why == 1:
                return TIMEOUT, None
            if why == 2:
                return CLOSED, None
            PyErr_CheckSignals()
            if timeout >= 0 and time.monotonic() >= deadline:  # also where input never pauses
                return TIMEOUT, None

    cdef cbool _write(self) except *:
        cdef const char* at = self.output.data()
        cdef size_t left = self.output.size()
        cdef ssize_t done
        while left:
            with nogil:
                done = c_write(self.writes, at, left)
            if done < 0:
                if errno == EPIPE:
                    return False
                if errno != EINTR:
                    raise OSError(errno, os.strerror(errno))
                PyErr_CheckSignals()
                continue
            at += done
            left -= <size_t>done
        self.output.clear()
        return True

    cdef int _read(self, int milliseconds) except -1:
        """0: something came, or a signal; 1: nothing in time; 2: the end."""
        cdef pollfd waiting
        cdef ssize_t size
        cdef int got
        cdef size_t before
        waiting.fd = self.reads
        waiting.events = POLLIN
        with nogil:
            got = c_poll(&waiting, 1, milliseconds)
        if got == 0:
            return 1
        if got < 0:
            if errno != EINTR:
                raise OSError(errno, os.strerror(errno))
            return 0
        self.pending.erase(0, self.begin)
        self.begin = 0
        before = self.pending.size()
        self.pending.resize(before + 65536)
        with nogil:
            size = c_read(self.reads, <char*>self.pending.data() + before, 65536)
        self.pending.resize(before + <size_t>(size if size > 0 else 0))
        if size < 0 and errno != EINTR:
            raise OSError(errno, os.strerror(errno))
        return 2 if size == 0 else 0

    def statistics(self, cbool reset=False):
        """Bytes of the statistics, a SpaceSaving for each type of keys."""
        return statistics_of(self.router[0], reset)

    def add_statistics(self, bytes part not None):
        """Add what was counted elsewhere: bytes of a SpaceSaving, of keys of one type."""
        add_statistics(self.router[0], part)

    @property
    def left(self):
        """Bytes of a frame whose end has not come."""
        return self.pending.size() - self.begin

    @property
    def records(self):
        """Records routed so far."""
        return self.router.records()


def message_frame(bytes text not None):
    """A command of multilang as a frame."""
    return struct.pack("<BI", 2, len(text)) + text

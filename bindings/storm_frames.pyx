# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language = c++
"""The native loop of a RouterShellBolt's child: frames in, frames out, the GIL released.

What is not a record or a heartbeat is handed to Python; so are errors.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

import os
import struct

from pyroute._core import FormatError


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll" (pollfd* fds, unsigned long count, int timeout)
    short POLLIN


cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read" (int fd, void* to, size_t size)
    ssize_t c_write "write" (int fd, const void* data, size_t size)


cdef extern from "<mutex>" namespace "std" nogil:
    cdef cppclass mutex:
        void lock()
        void unlock()


cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view:
        string_view()
        string_view(const char* data, size_t size)
        const char* data()
        size_t size()


cdef extern from *:
    """
    #include <span>
    #include <string>
    #include <utility>
    #include "errors.hpp"
    #include "storm/frames.hpp"

    namespace {
    struct Step {
      std::size_t consumed = 0;
      std::string_view message;
      int wrong = 0;  // 1: FormatError, 2: TypeError, 3: another
      std::string error;
    };
    // Nothing thrown crosses code without the GIL.
    Step step_of(pyroute::FrameRouter& router, std::string_view data, std::string& out) {
      Step step;
      try {
        const auto result = router.consume(data, out);
        step.consumed = result.consumed;
        step.message = result.message;
      } catch (const pyroute::FormatError& error) {
        step.wrong = 1;
        step.error = error.what();
      } catch (const pyroute::TypeMismatch& error) {
        step.wrong = 2;
        step.error = error.what();
      } catch (const std::exception& error) {
        step.wrong = 3;
        step.error = error.what();
      }
      return step;
    }
    void set_router_of(pyroute::FrameRouter& to, const std::shared_ptr<const pyroute::Router>& router,
                       const std::vector<std::int32_t>& tasks) {
      to.set_router(router, tasks);
    }
    std::string statistics_of(const pyroute::FrameRouter& router) {
      return router.statistics() ? router.statistics()->to_bytes() : std::string();
    }
    }  // namespace
    """
    cdef cppclass Router "const pyroute::Router":
        pass
    cdef cppclass FrameRouter "pyroute::FrameRouter":
        FrameRouter(size_t capacity) except +
        uint64_t records()
        void reset_statistics()
    cdef cppclass Step:
        Step()
        size_t consumed
        string_view message
        int wrong
        string error
    Step step_of(FrameRouter& router, string_view data, string& out) nogil
    void set_router_of(FrameRouter& to, const shared_ptr[Router]& router, const vector[int32_t]& tasks) except +
    string statistics_of(const FrameRouter& router) except +


cdef class FrameLoop:
    """Routes records between two pipes; a thread at a time may call `feed` or `run`, and any may call `send`."""

    cdef FrameRouter* router
    cdef mutex writing
    cdef string pending
    cdef string output
    cdef bint ready

    def __cinit__(self, size_t capacity=0):
        self.router = new FrameRouter(capacity)
        self.ready = False

    def __dealloc__(self):
        del self.router

    def set_router(self, capsule, storm_tasks):
        """A router by its capsule, and Storm's id of each of its tasks, ascending."""
        cdef vector[int32_t] tasks = storm_tasks
        set_router_of(self.router[0], (<shared_ptr[Router]*>PyCapsule_GetPointer(capsule, "pyroute.router"))[0], tasks)
        self.ready = True

    @property
    def records(self):
        """How many records were routed."""
        return self.router.records()

    def statistics(self):
        """Bytes of a `SpaceSaving` with the keys since the last reset; empty where there are no statistics."""
        cdef string data = statistics_of(self.router[0])
        return PyBytes_FromStringAndSize(data.data(), <Py_ssize_t>data.size())

    def reset_statistics(self):
        self.router.reset_statistics()

    cdef _raise(self, Step step):
        text = step.error.decode("utf-8", "replace")
        if step.wrong == 1:
            raise FormatError(text)
        if step.wrong == 2:
            raise TypeError(text)
        raise RuntimeError(text)

    def feed(self, const unsigned char[::1] data):
        """Takes input, without any pipe: what goes out, and the messages that are handed back."""
        cdef Step step
        if not self.ready:
            raise ValueError("router: expected set_router first, got none")
        if data.shape[0]:
            self.pending.append(<const char*>&data[0], <size_t>data.shape[0])
        messages = []
        while True:
            step = step_of(self.router[0], string_view(self.pending.data(), self.pending.size()), self.output)
            if step.wrong:
                self._raise(step)
            found = step.message.data() != NULL
            if found:
                messages.append(PyBytes_FromStringAndSize(step.message.data(), <Py_ssize_t>step.message.size()))
            self.pending.erase(0, step.consumed)
            if not found:
                break
        out = PyBytes_FromStringAndSize(self.output.data(), <Py_ssize_t>self.output.size())
        self.output.clear()
        return out, messages

    def send(self, int fd, bytes frames):
        """Writes whole frames, between those of `run`."""
        cdef const char* at = PyBytes_AS_STRING(frames)
        cdef size_t left = <size_t>PyBytes_GET_SIZE(frames)
        with nogil:
            self.writing.lock()
        try:
            self._write(fd, at, left)
        finally:
            self.writing.unlock()

    cdef _write(self, int fd, const char* at, size_t left):
        cdef ssize_t done
        while left:
            with nogil:
                done = c_write(fd, at, left)
            if done < 0:
                if errno == EINTR:
                    PyErr_CheckSignals()
                    continue
                raise OSError(errno, os.strerror(errno))
            at += done
            left -= <size_t>done

    def run(self, int reads, int writes, int timeout=-1):
        """Routes until there is something for Python.

        The next message that is not a record; None after so many milliseconds without input; EOFError where the JVM
        closed the pipe, OSError where it does not read any more.
        """
        cdef Step step
        cdef pollfd waiting
        cdef ssize_t size
        cdef int got
        cdef size_t before
        if not self.ready:
            raise ValueError("router: expected set_router first, got none")
        waiting.fd = reads
        waiting.events = POLLIN
        while True:
            if self.pending.size():
                with nogil:
                    step = step_of(self.router[0], string_view(self.pending.data(), self.pending.size()), self.output)
                if step.wrong:
                    self._raise(step)
            else:
                step = Step()
            message = None
            if step.consumed:
                if step.message.data() != NULL:
                    message = PyBytes_FromStringAndSize(step.message.data(), <Py_ssize_t>step.message.size())
                self.pending.erase(0, step.consumed)
            if self.output.size():
                with nogil:
                    self.writing.lock()
                try:
                    self._write(writes, self.output.data(), self.output.size())
                finally:
                    self.writing.unlock()
                self.output.clear()
            if message is not None:
                return message
            with nogil:
                got = c_poll(&waiting, 1, timeout)
            if got == 0:
                return None
            if got < 0:
                if errno == EINTR:
                    PyErr_CheckSignals()
                    continue
                raise OSError(errno, os.strerror(errno))
            before = self.pending.size()
            self.pending.resize(before + 65536)
            with nogil:
                size = c_read(reads, <char*>self.pending.data() + before, 65536)
            self.pending.resize(before + <size_t>(size if size > 0 else 0))
            if size == 0:
                raise EOFError("stdin: expected frames, got its end")
            if size < 0 and errno != EINTR:
                raise OSError(errno, os.strerror(errno))
            PyErr_CheckSignals()


def message_frame(bytes text):
    """A command of multilang as a frame."""
    return struct.pack("<BI", 2, len(text)) + text

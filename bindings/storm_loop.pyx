# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language = c++
"""The native loop of a router bolt: Storm's pipes, spliced without the GIL.

The router comes as the capsule that `Router` hands to its one-record twin too.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from *:
    """
    #include <system_error>
    #include "errors.hpp"
    #include "simd.hpp"
    #include "storm/pipes.hpp"

    namespace {
    void storm_loop_raise() {
      try {
        throw;
      } catch (const pyroute::TypeMismatch& error) {
        PyErr_SetString(PyExc_TypeError, error.what());
      } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
      } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
      } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
      } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
      }
    }

    void storm_loop_set_router(pyroute::Splicer& splicer, void* capsule,
                               const std::vector<std::int32_t>& tasks) {
      splicer.set_router(*static_cast<std::shared_ptr<const pyroute::Router>*>(capsule), tasks);
    }

    int storm_loop_run(pyroute::Pipes& pipes, double seconds) {
      const std::chrono::duration<double> timeout(seconds);
      return static_cast<int>(
          pipes.run(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout)));
    }

    pyroute::Pipes::Options storm_loop_options(double linger, std::size_t read_size,
                                               std::size_t flush_size, std::size_t max_message,
                                               int pipe_size) {
      pyroute::Pipes::Options options;
      options.linger = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::duration<double>(linger));
      options.read_size = read_size;
      options.flush_size = flush_size;
      options.max_message = max_message;
      options.pipe_size = pipe_size;
      return options;
    }

    std::vector<std::string> storm_loop_statistics(pyroute::Splicer& splicer, bool reset) {
      std::vector<std::string> parts;
      if (!splicer.statistics()) return parts;
      for (const pyroute::SpaceSaving& part : splicer.statistics()->parts())
        parts.push_back(part.to_bytes());
      if (reset) splicer.statistics()->reset();
      return parts;
    }

    void storm_loop_add(pyroute::Splicer& splicer, const std::string& part) {
      if (splicer.statistics()) splicer.statistics()->merge(pyroute::SpaceSaving::from_bytes(part));
    }

    struct StormSpliced {
      std::size_t consumed, begin, size;
      bool handed_back;
    };
    StormSpliced storm_loop_splice(pyroute::Splicer& splicer, const char* data, std::size_t size,
                                   std::size_t seen, pyroute::Output& out) {
      // A buffer of exactly this size, so that a sanitizer sees the first byte beyond it.
      const std::unique_ptr<char[]> copy(new char[size + pyroute::Splicer::kPadding]);
      if (size > 0) std::memcpy(copy.get(), data, size);
      const auto [consumed, message] = splicer.splice(copy.get(), size, seen, out);
      const bool handed_back = message.data() != nullptr;
      return {consumed, handed_back ? static_cast<std::size_t>(message.data() - copy.get()) : 0,
              message.size(), handed_back};
    }
    }  // namespace
    """
    void storm_loop_raise()
    cdef cppclass Source "pyroute::Source":
        string component
        string stream
        vector[uint32_t] fields
    cdef cppclass Output "pyroute::Output":
        Output()
        char* end() nogil
        size_t size() nogil
    cdef cppclass CSplicer "pyroute::Splicer":
        CSplicer(CSplicer)
        CSplicer(vector[Source], string, size_t) except +storm_loop_raise
        uint64_t records()
        const vector[uint64_t]& sent()
    cdef cppclass Options "pyroute::Pipes::Options":
        pass
    cdef cppclass View "std::string_view":
        View(const char*, size_t)
        const char* data()
        size_t size()
    cdef cppclass CPipes "pyroute::Pipes":
        CPipes(int, int, CSplicer, Options) except +storm_loop_raise
        void push(View) except +storm_loop_raise
        View message()
        size_t left()
        CSplicer& splicer()
    void set_router "storm_loop_set_router"(
        CSplicer&, void*, const vector[int32_t]&) except +storm_loop_raise
    int run_pipes "storm_loop_run"(CPipes&, double) except +storm_loop_raise nogil
    Options make_options "storm_loop_options"(double, size_t, size_t, size_t, int)
    vector[string] statistics_of "storm_loop_statistics"(CSplicer&, cbool) except +storm_loop_raise
    void add_statistics "storm_loop_add"(CSplicer&, const string&) except +storm_loop_raise
    cdef struct Spliced "StormSpliced":
        size_t consumed
        size_t begin
        size_t size
        cbool handed_back
    Spliced splice_copy "storm_loop_splice"(
        CSplicer&, const char*, size_t, size_t, Output&) except +storm_loop_raise nogil
    CSplicer move_splicer "std::move"(CSplicer&)
    void choose_simd "pyroute::choose_simd"(string) except +storm_loop_raise


import os

choose_simd(os.environ.get("PYROUTE_SIMD", "").encode())

MESSAGE = 0
TIMEOUT = 1
CLOSED = 2
UNREAD = 3
INTERRUPTED = 4
TOO_LONG = 5


cdef CSplicer* make_splicer(sources, stream, size_t capacity) except NULL:
    cdef vector[Source] native
    cdef Source source
    for component, name, fields in sources:
        source.component = component.encode()
        source.stream = name.encode()
        source.fields = fields
        native.push_back(source)
    return new CSplicer(native, stream, capacity)


cdef class Splicer:
    """Routes records in bytes, without I/O: what the loop does between its reads and writes."""

    cdef CSplicer* splicer

    def __cinit__(self, sources, *, bytes stream=b"", size_t capacity=0):
        self.splicer = make_splicer(sources, stream, capacity)

    def __dealloc__(self):
        del self.splicer

    def set_router(self, capsule, tasks):
        """The router, and Storm's ids of its tasks, ascending."""
        set_router(self.splicer[0], PyCapsule_GetPointer(capsule, "pyroute.router"), tasks)

    def splice(self, bytes data not None, size_t seen=0):
        """Returns (output, bytes done with, message handed back or None)."""
        cdef Output out
        cdef Spliced done
        cdef size_t size = <size_t>len(data)
        cdef const char* start = data
        with nogil:
            done = splice_copy(self.splicer[0], start, size, min(seen, size), out)
        message = None
        if done.handed_back:
            message = start[done.begin:done.begin + done.size]
        return (out.end() - out.size())[:out.size()] if out.size() else b"", done.consumed, message

    def statistics(self):
        """Bytes of the statistics, a SpaceSaving for each type of keys."""
        return statistics_of(self.splicer[0], False)

    @property
    def records(self):
        return self.splicer.records()

    @property
    def sent(self):
        return list(self.splicer.sent())


cdef class Loop:
    """The loop between two file descriptors."""

    cdef CPipes* pipes

    def __cinit__(
        self,
        int reads,
        int writes,
        sources,
        *,
        bytes stream=b"",
        size_t capacity=0,
        double linger=100e-6,
        size_t read_size=1 << 18,
        size_t flush_size=1 << 16,
        size_t max_message=1 << 28,
        int pipe_size=0,
    ):
        cdef CSplicer* splicer = make_splicer(sources, stream, capacity)
        try:
            self.pipes = new CPipes(
                reads,
                writes,
                move_splicer(splicer[0]),
                make_options(linger, read_size, flush_size, max_message, pipe_size),
            )
        finally:
            del splicer

    def __dealloc__(self):
        del self.pipes

    def set_router(self, capsule, tasks):
        """The router, and Storm's ids of its tasks, ascending."""
        set_router(self.pipes.splicer(), PyCapsule_GetPointer(capsule, "pyroute.router"), tasks)

    def push(self, bytes data not None):
        """Bytes that were read before the loop began."""
        self.pipes.push(View(data, <size_t>len(data)))

    def run(self, double timeout=-1.0):
        """Route until something else is to be done; returns what, and a message where it is one."""
        cdef int why
        with nogil:
            why = run_pipes(self.pipes[0], timeout)
        if why != 0:
            return why, None
        return why, self.pipes.message().data()[:self.pipes.message().size()]

    def statistics(self, cbool reset=False):
        """Bytes of the statistics, a SpaceSaving for each type of keys."""
        return statistics_of(self.pipes.splicer(), reset)

    def add_statistics(self, bytes part not None):
        """Add what was counted elsewhere: bytes of a SpaceSaving, of keys of one type."""
        add_statistics(self.pipes.splicer(), part)

    @property
    def left(self):
        """Bytes of a message whose end has not come."""
        return self.pipes.left()

    @property
    def records(self):
        """Records routed so far."""
        return self.pipes.splicer().records()

    @property
    def sent(self):
        """Records sent to each task of the router, ascending."""
        return list(self.pipes.splicer().sent())

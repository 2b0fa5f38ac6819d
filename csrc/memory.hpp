// Memory for arrays that are read at random places: beyond a few megabytes most of such a read is
// the walk of the page table, so large blocks ask the system for large pages. Where it has none,
// nothing changes.
// Threads: as std::allocator.
#pragma once

#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pyroute {

template <class T>
struct LargePages {
  using value_type = T;
  static constexpr std::size_t kPage = std::size_t{1} << 21;
  static constexpr std::size_t kLine = 64;

  LargePages() = default;
  template <class U>
  explicit LargePages(const LargePages<U>&) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::size_t(-1) / sizeof(T) - kPage) throw std::bad_array_new_length();
    const std::size_t bytes = count * sizeof(T);
    const std::size_t align = bytes >= kPage ? kPage : kLine;
    void* const block = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    if (block == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    if (align == kPage) madvise(block, bytes, MADV_HUGEPAGE);  // a wish: failing is no error
#endif
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t) noexcept { std::free(block); }

  template <class U>
  [[nodiscard]] bool operator==(const LargePages<U>&) const noexcept {
    return true;
  }
};

}  // namespace pyroute

#pragma once

#include <c10/util/Exception.h>

namespace c10 {
inline namespace mc_facade {

using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using string_view = std::string_view;

// A view of an array that somebody else owns, with PyTorch's constructors.
template <typename T>
class ArrayRef final {
 public:
  using iterator = const T*;
  using const_iterator = const T*;
  using size_type = size_t;
  using value_type = T;
  using reverse_iterator = std::reverse_iterator<iterator>;

  constexpr ArrayRef() : data_(nullptr), length_(0) {}
  constexpr ArrayRef(const T& one) : data_(&one), length_(1) {}
  constexpr ArrayRef(const T* data, size_t length) : data_(data), length_(length) {}
  constexpr ArrayRef(const T* begin, const T* end)
      : data_(begin), length_(static_cast<size_t>(end - begin)) {}
  template <typename Container,
            typename U = decltype(std::declval<Container>().data()),
            typename = std::enable_if_t<std::is_same_v<U, T*> || std::is_same_v<U, const T*>>>
  constexpr ArrayRef(const Container& container)
      : data_(container.data()), length_(container.size()) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& vector) : data_(vector.data()), length_(vector.size()) {
    static_assert(!std::is_same_v<T, bool>,
                  "ArrayRef<bool> cannot be constructed from a std::vector<bool> bitfield.");
  }
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& array) : data_(array.data()), length_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&array)[N]) : data_(array), length_(N) {}
#if defined(__GNUC__) && !defined(__clang__)
// The list outlives the full expression in which it is passed, as in PyTorch's own class.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  constexpr ArrayRef(const std::initializer_list<T>& list)
      : data_(list.begin() == list.end() ? nullptr : list.begin()), length_(list.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + length_; }
  constexpr const_iterator cbegin() const { return data_; }
  constexpr const_iterator cend() const { return data_ + length_; }
  constexpr reverse_iterator rbegin() const { return reverse_iterator(end()); }
  constexpr reverse_iterator rend() const { return reverse_iterator(begin()); }
  constexpr bool empty() const { return length_ == 0; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return length_; }
  constexpr const T& front() const {
    TORCH_CHECK(!empty(), "ArrayRef: attempted to access front() of empty list");
    return data_[0];
  }
  constexpr const T& back() const {
    TORCH_CHECK(!empty(), "ArrayRef: attempted to access back() of empty list");
    return data_[length_ - 1];
  }
  constexpr bool equals(ArrayRef other) const {
    return length_ == other.length_ && std::equal(begin(), end(), other.begin());
  }
  constexpr ArrayRef<T> slice(size_t start, size_t count) const {
    TORCH_CHECK(start + count <= length_, "ArrayRef: invalid slice, N = ", start, "; M = ", count,
                "; size = ", length_);
    return ArrayRef<T>(data_ + start, count);
  }
  constexpr ArrayRef<T> slice(size_t start) const {
    TORCH_CHECK(start <= length_, "ArrayRef: invalid slice, N = ", start, "; size = ", length_);
    return slice(start, length_ - start);
  }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  constexpr const T& at(size_t index) const {
    TORCH_CHECK(index < length_, "ArrayRef: invalid index Index = ", index,
                "; Length = ", length_);
    return data_[index];
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }

  template <typename U>
  std::enable_if_t<std::is_same_v<U, T>, ArrayRef<T>>& operator=(U&& temporary) = delete;
  template <typename U>
  std::enable_if_t<std::is_same_v<U, T>, ArrayRef<T>>& operator=(std::initializer_list<U>) = delete;

 private:
  const T* data_;
  size_t length_;
};

template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}
template <typename T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) {
  return ArrayRef<T>(a).equals(b);
}
template <typename T>
bool operator!=(const std::vector<T>& a, ArrayRef<T> b) {
  return !ArrayRef<T>(a).equals(b);
}
template <typename T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) {
  return a.equals(ArrayRef<T>(b));
}
template <typename T>
bool operator!=(ArrayRef<T> a, const std::vector<T>& b) {
  return !a.equals(ArrayRef<T>(b));
}
#ifndef MC_DEVICE_UNIT
template <typename T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << "[";
  const char* separator = "";
  for (const auto& item : list) {
    out << separator << item;
    separator = ", ";
  }
  return out << "]";
}
#endif

using IntArrayRef = ArrayRef<int64_t>;

template <typename T>
class OptionalArrayRef final {
 public:
  constexpr OptionalArrayRef() noexcept = default;
  constexpr OptionalArrayRef(std::nullopt_t) noexcept {}
  constexpr OptionalArrayRef(const std::optional<ArrayRef<T>>& other) noexcept : value_(other) {}
  constexpr OptionalArrayRef(const T& value) noexcept : value_(value) {}
  template <typename U = ArrayRef<T>,
            std::enable_if_t<!std::is_same_v<std::decay_t<U>, OptionalArrayRef> &&
                                 std::is_constructible_v<ArrayRef<T>, U&&> &&
                                 std::is_convertible_v<U&&, ArrayRef<T>> &&
                                 !std::is_convertible_v<U&&, T>,
                             bool> = false>
  constexpr OptionalArrayRef(U&& value) noexcept : value_(std::forward<U>(value)) {}
  constexpr OptionalArrayRef(const std::initializer_list<T>& list) noexcept
      : value_(ArrayRef<T>(list)) {}

  constexpr bool has_value() const noexcept { return value_.has_value(); }
  constexpr explicit operator bool() const noexcept { return value_.has_value(); }
  constexpr const ArrayRef<T>& value() const& { return value_.value(); }
  constexpr const ArrayRef<T>& operator*() const& noexcept { return *value_; }
  constexpr const ArrayRef<T>* operator->() const noexcept { return &*value_; }

 private:
  std::optional<ArrayRef<T>> value_;
};

using OptionalIntArrayRef = OptionalArrayRef<int64_t>;

} // namespace mc_facade
} // namespace c10

namespace at {
inline namespace mc_facade {
using c10::ArrayRef;
using c10::IntArrayRef;
using c10::OptionalIntArrayRef;
} // namespace mc_facade
} // namespace at

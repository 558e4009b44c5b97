// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast::detail {

// The names of types that a backend may have; a layer has those of what it stands on.
template <class Up, bool Streaming>
struct StreamTypeOf {};
template <class Up>
struct StreamTypeOf<Up, true> {
  using stream_type = typename Up::stream_type;
};
template <class Up>
struct EventTypeOf {};
template <class Up>
  requires requires { typename Up::event_type; }
struct EventTypeOf<Up> {
  using event_type = typename Up::event_type;
};

/// What a layer refers to: a pointer to the user's object, nothing where that is empty. `Owner` makes each one a type of its own,
/// since two empty members of one type take room.
template <class T, class Owner>
class StateRef {
 public:
  explicit constexpr StateRef(T& state) noexcept : at_(&state) {}
  [[nodiscard]] constexpr T& get() const noexcept { return *at_; }

 private:
  T* at_;
};
template <class T, class Owner>
  requires std::is_empty_v<T>
class StateRef<T, Owner> {
 public:
  constexpr StateRef() noexcept = default;
  explicit constexpr StateRef(T&) noexcept {}
  [[nodiscard]] constexpr T get() const noexcept { return {}; }
};

// Names the state that a stack is made with, where there is one.
template <class State, class Up>
struct StateTypeOf {
  using state_type = State;
};
template <class State, class Up>
  requires std::is_empty_v<State>
struct StateTypeOf<State, Up> {};

// Whether a request may wait until another thread releases something; nobody may hold a lock around that.
template <class T>
inline constexpr bool waits_for_release = requires { requires T::waits_for_release; };

/// What all layers share: each form of `allocate` and `deallocate` leads to the layer's own `take(size, alignment, tag, stream...)`
/// and `give(block, stream...)`, and what it does not change goes to what it stands on, as far as that has it.
template <class Self, memory_backend Up, bool Tagging = tagging_backend<Up>, bool Streaming = stream_ordered_backend<Up>>
class LayerBase : public StreamTypeOf<Up, Streaming>, public EventTypeOf<Up> {
 public:
  using up_type = Up;
  static constexpr MemorySpace space = Up::space;
  static constexpr bool host_accessible = holdfast::host_accessible<Up>;
  static constexpr bool waits_for_release = detail::waits_for_release<Up>;
  static constexpr bool runs_continuations = holdfast::runs_continuations<Up>;

  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return self().take(size, alignment, Tag{}); }
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, Tag tag) noexcept
    requires Tagging
  {
    return self().take(size, alignment, tag);
  }
  void deallocate(Block block) noexcept { self().give(block); }

  /// Stream: as what the layer stands on.
  template <class Stream>
    requires(Streaming && requires(Up& up, Stream& s, Bytes size, Alignment alignment) { up.allocate(s, size, alignment); })
  [[nodiscard]] Result<Block> allocate(Stream& stream, Bytes size, Alignment alignment) noexcept {
    return self().take(size, alignment, Tag{}, stream);
  }
  template <class Stream>
    requires(Tagging && Streaming && requires(Up& up, Stream& s, Bytes size, Alignment alignment) { up.allocate(s, size, alignment); })
  [[nodiscard]] Result<Block> allocate(Stream& stream, Bytes size, Alignment alignment, Tag tag) noexcept {
    return self().take(size, alignment, tag, stream);
  }
  template <class Stream>
    requires(Streaming && requires(Up& up, Stream& s, Block block) { up.deallocate(s, block); })
  void deallocate(Stream& stream, Block block) noexcept {
    self().give(block, stream);
  }

  template <class... Args>
    requires requires(Up& up, Args&&... args) { up.copy_in(args...); }
  [[nodiscard]] auto copy_in(Args&&... args) noexcept {
    return up_.copy_in(std::forward<Args>(args)...);
  }
  template <class... Args>
    requires requires(Up& up, Args&&... args) { up.copy_out(args...); }
  [[nodiscard]] auto copy_out(Args&&... args) noexcept {
    return up_.copy_out(std::forward<Args>(args)...);
  }
  template <class... Args>
    requires requires(Up& up, Args&&... args) { up.copy(args...); }
  [[nodiscard]] auto copy(Args&&... args) noexcept {
    return up_.copy(std::forward<Args>(args)...);
  }

  template <class Visitor>
  void visit_blocks(Visitor visitor) noexcept
    requires inspectable_backend<Up>
  {
    up_.visit_blocks(std::move(visitor));
  }
  [[nodiscard]] Bytes largest_free() noexcept
    requires inspectable_backend<Up>
  {
    return up_.largest_free();
  }
  Bytes trim(Bytes keep) noexcept
    requires inspectable_backend<Up>
  {
    return up_.trim(keep);
  }

  /// What the layer stands on.
  [[nodiscard]] constexpr Up& up() noexcept { return up_; }

 protected:
  constexpr LayerBase() noexcept = default;
  explicit constexpr LayerBase(Up up) noexcept : up_(std::move(up)) {}

  template <class... Stream>
  [[nodiscard]] Result<Block> take_up(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
    if constexpr (requires { up_.allocate(stream..., size, alignment, tag); })
      return up_.allocate(stream..., size, alignment, tag);
    else
      return up_.allocate(stream..., size, alignment);
  }
  template <class... Stream>
  void give_up(Block block, Stream&... stream) noexcept {
    up_.deallocate(stream..., block);
  }

 private:
  [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }
  HOLDFAST_NO_UNIQUE_ADDRESS Up up_{};
};

/// What layers with a state share: it is made with the user's object, with nothing where that is empty.
template <class Self, memory_backend Up, class State, bool Tagging = tagging_backend<Up>, bool Streaming = stream_ordered_backend<Up>>
class StatefulLayer : public LayerBase<Self, Up, Tagging, Streaming>, public StateTypeOf<State, Up> {
  using Base = LayerBase<Self, Up, Tagging, Streaming>;

 public:
  constexpr StatefulLayer() noexcept
    requires std::is_empty_v<State>
  = default;
  explicit constexpr StatefulLayer(Up up) noexcept
    requires std::is_empty_v<State>
      : Base(std::move(up)) {}
  constexpr StatefulLayer(Up up, State& state) noexcept : Base(std::move(up)), state_(state) {}

 protected:
  [[nodiscard]] constexpr decltype(auto) state() const noexcept { return state_.get(); }

 private:
  HOLDFAST_NO_UNIQUE_ADDRESS StateRef<State, Self> state_;
};

}  // namespace holdfast::detail

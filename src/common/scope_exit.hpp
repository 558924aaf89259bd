//! Runs a function when a scope is left, whether by return or by an exception.
#pragma once

#include <utility>

namespace rawduck {

//! `BODY`: a function without arguments that does not throw.
template <class BODY> class ScopeExit {
  public:
    explicit ScopeExit(BODY body) : body_(std::move(body)) {}
    ~ScopeExit() { body_(); }
    ScopeExit(const ScopeExit &) = delete;
    ScopeExit &operator=(const ScopeExit &) = delete;

  private:
    const BODY body_;
};

} // namespace rawduck

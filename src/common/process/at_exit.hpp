//! What has to be done when a scope is left, however it is left.
#pragma once

#include <utility>

namespace rawduck {

//! `BODY`: a function without arguments that does not throw.
template <class BODY> class AtExit {
  public:
    explicit AtExit(BODY body) : body_(std::move(body)) {}
    ~AtExit() { body_(); }
    AtExit(const AtExit &) = delete;
    AtExit &operator=(const AtExit &) = delete;

  private:
    const BODY body_;
};

} // namespace rawduck

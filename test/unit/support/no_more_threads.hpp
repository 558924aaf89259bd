//! A system that has no more threads.
#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <pthread.h>

namespace rawduck {

//! While it lives, std::thread throws std::system_error: new
//! threads want a stack that fits into no address space.
class NoMoreThreads {
  public:
    NoMoreThreads() {
        EXPECT_EQ(pthread_getattr_default_np(&usual_), 0);
        pthread_attr_t huge;
        EXPECT_EQ(pthread_getattr_default_np(&huge), 0);
        EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 48), 0);
        EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
        pthread_attr_destroy(&huge);
    }
    ~NoMoreThreads() {
        EXPECT_EQ(pthread_setattr_default_np(&usual_), 0);
        pthread_attr_destroy(&usual_);
    }
    NoMoreThreads(const NoMoreThreads &) = delete;
    NoMoreThreads &operator=(const NoMoreThreads &) = delete;

  private:
    pthread_attr_t usual_;
};

} // namespace rawduck

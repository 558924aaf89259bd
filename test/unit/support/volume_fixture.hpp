//! A volume in memory that demands what a strict device would, for tests.
#pragma once

#include "common/error.hpp"
#include "io/device/memory_device.hpp"
#include "volume/registry.hpp"
#include "volume/volume.hpp"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>

namespace rawduck {

class MemoryVolume {
  public:
    explicit MemoryVolume(uint32_t lba_size, uint64_t capacity = 64 * MIB) {
        static std::atomic<int> counter{0};
        name = "memory:test" + std::to_string(counter++);
        FormatOptions options;
        options.lba_size = lba_size;
        options.size_bytes = capacity;
        Volume::Format(name, options);
    }
    ~MemoryVolume() { DropMemoryTarget(name.substr(7)); }

    std::shared_ptr<Volume> Mount() const {
        return Volume::Mount(ResolveTarget(name), MountOptions(), std::make_shared<IoStats>());
    }

    std::string name;
};

inline OpenMode WriteMode(FileKind kind = FileKind::OTHER) {
    OpenMode mode;
    mode.write = mode.create = true;
    mode.kind = kind;
    return mode;
}

//! Once a mount has written, it writes a checkpoint in the background; the last writer to leave waits for it. For tests
//! that look at each command of the device.
inline void AwaitFirstCheckpoint(Volume &volume) {
    volume.Open("first", WriteMode());
}

inline std::string RandomBytes(std::mt19937_64 &random, size_t length) {
    std::string bytes(length, '\0');
    for (char &byte : bytes) {
        byte = static_cast<char>(random());
    }
    return bytes;
}

inline std::string ReadAll(Volume &volume, const std::string &name) {
    auto file = volume.Open(name, OpenMode());
    std::string content(file->Size(), '?');
    EXPECT_EQ(file->Read(&content[0], content.size(), 0), content.size());
    return content;
}

//! Until nothing is written in the background.
inline void AwaitCheckpoint(const Volume &volume) {
    while (volume.Info().checkpoint_pending) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

//! Of the error that is thrown, and its text; a failure of the test when there is none.
inline ErrorCode FailureOf(const std::function<void()> &action, std::string *text = nullptr) {
    try {
        action();
    } catch (const Error &error) {
        if (text) {
            *text = error.what();
        }
        return error.Code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::INVALID;
}

} // namespace rawduck

//! Lays a file of a volume into fewer extents, while others read and write it. Durable contents that lie in several short
//! pieces one behind the other in the file are copied to one free extent, step by step, and a record of the log switches to
//! it when it is full. A cut or kill anywhere leaves each piece in its old place or in its new one.
#pragma once

#include "volume/mount/volume_state.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace rawduck {

//! Not thread-safe.
class Defragmenter {
  public:
    //! What a step copies. Reads and writes of the file wait for one step at most.
    static constexpr uint64_t STEP_BYTES = 1 * MIB;
    //! What is copied to one extent. The space for it is taken, and what it replaces is kept, until it is durable.
    static constexpr uint64_t RUN_BYTES_MAX = 64 * MIB;
    //! Pieces as long as this stay where they are: a device reads them as fast as longer ones.
    static constexpr uint64_t LONG_BYTES = 16 * MIB;

    //! `bytes_per_second`: what it copies at most; 0: no limit. Makes the process a writer until this ends. Throws Error
    //! NOT_FOUND, INVALID for what is no file with contents of its own, and as a write does.
    Defragmenter(std::shared_ptr<VolumeState> volume, const std::string &name, uint64_t bytes_per_second);
    //! In the middle of a run: switches to what was copied, and gives back the rest of the space for it.
    ~Defragmenter();
    Defragmenter(const Defragmenter &) = delete;
    Defragmenter &operator=(const Defragmenter &) = delete;

    //! Copies one piece, or switches to what was copied, or looks on for what to copy; waits before where it would be faster
    //! than it may, a tenth of a second at most. False when all is done and durable; nothing may be called then but what
    //! follows. Throws Error as a write does.
    bool Step();

    std::string FileName() const { return file_->Name(); }
    uint64_t ExtentsBefore() const { return extents_before_; }
    uint64_t Extents() const { return file_->Info().extents.size(); }
    uint64_t CopiedBytes() const { return copied_bytes_; }
    //! Bytes in short pieces that stay, since snapshots, clones or readers have them, too.
    uint64_t SharedBytes() const { return shared_bytes_; }
    //! Bytes in short pieces that stay, since no free extent is long enough for them.
    uint64_t NoPlaceBytes() const { return no_place_bytes_; }
    //! How far it is in the file, and the size of that.
    uint64_t PositionBytes() const { return position_ * ALLOCATION_UNIT_BYTES; }
    uint64_t SizeBytes() const { return file_->Size(); }

  private:
    //! Short pieces one behind the other in the file, which lie nowhere together.
    struct Run {
        uint64_t begin = 0;   //!< file units
        uint64_t units = 0;   //!< of all pieces
        uint64_t pieces = 0;  //!< how many
        uint64_t longest = 0; //!< units of the longest
    };

    bool MayGoOn();
    bool LookOn();
    Run FindRun();
    std::optional<Space::Piece> PlaceFor(const Run &run);
    void CopyStep();
    void EndRun();

    const std::shared_ptr<VolumeState> volume_; //!< keeps the volume mounted
    std::optional<WriteScope> writing_;
    std::shared_ptr<File> file_;
    const uint64_t bytes_per_second_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    uint64_t position_ = HEAD_UNITS; //!< file units; what lies before was looked at
    int waits_ = 0;                  //!< for a place for the run that begins there
    Extent target_;                  //!< what is left of the place that is copied to; no units: there is none
    uint64_t extents_before_ = 0, copied_bytes_ = 0, shared_bytes_ = 0, no_place_bytes_ = 0;
};

} // namespace rawduck

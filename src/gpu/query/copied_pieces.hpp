//! Pieces of a result that a device copies from, kept until it has.
#pragma once

#include "gpu/query/piece_format.hpp"

#include <deque>
#include <memory>

namespace rawduck::gpu {

//! Used by one thread at a time.
class CopiedPieces {
  public:
    explicit CopiedPieces(std::shared_ptr<Device> device) : device_(std::move(device)) {}
    //! Waits for all of them.
    ~CopiedPieces();
    CopiedPieces(const CopiedPieces &) = delete;
    CopiedPieces &operator=(const CopiedPieces &) = delete;

    //! Takes the piece; its rows are seen by what the device is told behind Finish. Waits for earlier pieces where those on
    //! their way hold more than MOST_BYTES.
    QueuedRows ToDevice(duckdb::unique_ptr<Piece> piece);
    //! What the device is told later sees all rows so far. Lets go of pieces that came before it was last called: those have
    //! been copied for long.
    void Finish();
    //! Waits for all of them.
    void LetGo();

    static constexpr uint64_t MOST_BYTES = 8 << 20;

  private:
    struct OnItsWay {
        duckdb::unique_ptr<Piece> piece;
        std::shared_ptr<Event> copied; //!< null: telling the device failed, and how far it got is not known
    };

    void WaitForOldest();

    std::shared_ptr<Device> device_;
    std::deque<OnItsWay> on_their_way_;
    uint64_t held_bytes_ = 0;       //!< by them
    size_t since_finish_ = 0;       //!< so many of them came
    std::shared_ptr<Event> latest_; //!< that nothing was told to wait for yet
};

} // namespace rawduck::gpu

//! Receives a stream into a volume. What comes is written to <file>.receiving, which for a difference begins as a clone of its base,
//! and how far it is to <file>.receiving.origin, so that after a power cut, too, a later stream can go on. When the stream is whole,
//! one record makes that the file, and a snapshot of it under the name that it was sent with.
//!
//! What is there at an instant, and what the next receive does with it:
//!   nothing ── BeginPart ──▶ origin, reached nothing, then the files ── Keep, … ──▶ files and origin ──▶ reached the end
//!     removed and begun anew ◀─┘                          goes on, or is given up ◀─┘                      │ TakeReceived
//!   nothing ◀── the rest is removed, also by the next receive, and the origin last ◀── file and snapshot ◀──┘
//! Files of these names without an origin are somebody's own. Beside one nobody else writes to them.
#pragma once

#include "common/interrupted.hpp"
#include "volume/backup/origin.hpp"
#include "volume/backup/receiver.hpp"
#include "volume/registry.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace rawduck {

class VolumeDestination final : public Destination {
  public:
    //! `overwrite`: of the file, what changed since it was received, or all of it. `interrupted` is asked where files are
    //! compared.
    VolumeDestination(VolumePin volume, std::string file, bool overwrite, Interrupted interrupted = nullptr);
    ~VolumeDestination() override;
    //! Throws Error EXISTS, INVALID when the base is not there or the file has changed since, LOCKED, NO_SPACE.
    StreamPosition Begin(const StreamHeader &header) override;
    void Write(const StreamPiece &piece) override;
    void Keep(const StreamPosition &reached) override;
    void Finish() override;
    std::string AfterFailure() const override;

  private:
    void RequireRoom() const;
    void RequireNameOfDatabase(const std::string &sent) const;
    std::string FindSent() const;
    std::string FindBase() const;
    void LockReplaced(const std::string &sent);
    void RequireReplaceable(const std::string &base, const std::string &sent) const;
    bool IsUnchangedSince(const std::string &base) const;
    std::optional<Origin> FindPart(const StreamHeader &header);
    bool IsReceived(const SnapshotIdentity &snapshot) const;
    void BeginPart(const std::string &base);
    void OpenPart();

    VolumePin volume_;
    const std::string target_, file_, part_;
    const bool overwrite_;
    const Interrupted interrupted_;
    Origin origin_;
    bool taken_ = false;                              //!< the file is what was received
    std::vector<std::unique_ptr<OpenFile>> replaced_; //!< keeps others from them
    std::unique_ptr<OpenFile> origin_file_;           //!< keeps others from receiving here
    std::vector<std::unique_ptr<OpenFile>> files_;
};

//! What was received of a stream that was cut short, for the file of that name. Nothing when there is none.
std::optional<Origin> FindReceived(Volume &volume, const std::string &file);
//! Removes that. Throws Error LOCKED while it is being received, EXISTS for files of these names that no receive has left. False
//! when there was nothing.
bool GiveUpReceived(Volume &volume, const std::string &file);

} // namespace rawduck

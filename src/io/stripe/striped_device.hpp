//! Several devices as one: a stripe (target/stripe.hpp). Requests are split at its chunks (Capabilities::boundary_bytes), so
//! that each command is one member's.
#pragma once

#include "io/device/device.hpp"
#include "io/stripe/member_header.hpp"
#include "io/stripe/stripe_layout.hpp"
#include "io/stripe/striped_queue.hpp"

#include <atomic>
#include <mutex>

namespace rawduck {

class StripedDevice final : public Device, private CommandRouter {
  public:
    enum class Headers {
        REQUIRE, //!< the members must be what the stripe says
        NONE     //!< they are about to be made members of it
    };
    //! `devices`: of the members, in their order. Throws Error LOCKED when they have been changed since they were found,
    //! CORRUPT when one is outdated, UNSUPPORTED or INVALID when they do not suit each other.
    StripedDevice(std::string target_name, const Stripe &stripe, std::vector<std::unique_ptr<Device>> devices,
                  Headers headers);

    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override;
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override;
    std::unique_ptr<Queue> CreateSynchronousQueue() override;
    //! Of every member that has been written to since its last flush. Once that has failed on one, it fails for ever: what
    //! it did not make durable, a later one says nothing of.
    void Flush() override;
    bool Deallocate(uint64_t device_offset, uint64_t length) override;
    bool DeallocateRanges(const std::vector<DeviceRange> &ranges) override;
    bool Register(void *memory, uint64_t bytes, MemoryNeed need) override;
    void Forget(void *memory) override;
    //! Writes the headers of the next generation, which say where the members are now.
    void BeginWriting() override;
    std::vector<DeviceMember> Members() override;

    //! Takes away what the members were before, durably.
    void EraseMembers();
    //! Makes them members of this stripe, durably.
    void WriteHeaders(const WritingSession &session);

  private:
    size_t Translate(Command &command) const override;
    void TranslateBack(Command &command, size_t member) override;
    struct Member {
        std::unique_ptr<Device> device;
        std::string clause; //!< "member 1 (/dev/nvme2n1)"
        //! A write has completed that no flush covers. At first it may have been another process's.
        std::atomic<bool> unflushed{true};
        std::mutex flush_mutex;    //!< held during a flush; no other lock is taken under it; guards the rest
        bool flush_failed = false; //!< remembered without memory, which may be what is missing
        std::string flush_failure = {}; //!< why, where there was memory for that
    };

    void RequireAlike() const;
    void Describe();
    void DescribePlacement();
    std::unique_ptr<Queue> MakeQueue(std::vector<std::unique_ptr<Queue>> queues, uint32_t depth);
    std::vector<HeaderCopies> ReadAllHeaders() const;
    struct Sessions {
        WritingSession last;         //!< that all members have begun
        uint64_t newest = 0;         //!< generation of any copy
        bool firsts_are_old = false; //!< a first copy is missing, or of another session
    };
    Sessions RequireHeaders() const;
    void WriteCopies(HeaderCopy copy, const WritingSession &session);
    void RequireMember(const HeaderCopies &copies, size_t index) const;
    std::string MemberOfAnotherHistory(const std::vector<HeaderCopies> &copies,
                                       const WritingSession &last) const;
    void FlushMember(Member &member);

    const std::string name_;
    Stripe stripe_;
    const StripeLayout layout_;
    std::vector<std::unique_ptr<Member>> members_;
    Capabilities caps_;
    bool translates_placement_ = false; //!< the members have different identifiers
};

} // namespace rawduck

#include "ceph/rados/pool/object_listing.hpp"

#include "ceph/rados/connection/interruptible.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <thread>

namespace rawduck_ceph {

namespace {

//! Each placement group takes a round trip to its OSD, and pools have hundreds of them.
constexpr size_t THREADS = 8;
constexpr size_t NAMES_PER_REQUEST = 1000;

//! Owns a cursor.
class Cursor {
  public:
    Cursor(rados_ioctx_t io, rados_object_list_cursor cursor) : io_(io), cursor_(cursor) {}
    ~Cursor() { rados_object_list_cursor_free(io_, cursor_); }
    Cursor(const Cursor &) = delete;
    Cursor &operator=(const Cursor &) = delete;

    rados_object_list_cursor Get() const { return cursor_; }
    rados_object_list_cursor *Address() { return &cursor_; }

  private:
    const rados_ioctx_t io_;
    rados_object_list_cursor cursor_;
};

//! Shared by the threads that list, which may outlive the call that has started them.
struct Listing {
    Listing(std::shared_ptr<const void> of_ioctx, rados_ioctx_t ioctx, std::string names_prefix,
            size_t names_max)
        : owner(std::move(of_ioctx)), io(ioctx), prefix(std::move(names_prefix)), limit(names_max) {}

    const std::shared_ptr<const void> owner;
    const rados_ioctx_t io;
    const std::string prefix;
    const size_t limit;
    std::mutex mutex; //!< guards names and code; no other lock is taken while it is held
    std::vector<std::string> names;
    int code = 0; //!< of the last failed request
    std::atomic<bool> stopped{false};
    std::atomic<size_t> running{THREADS};
    OperationEnd end;

    //! Adds the result of one request; a negative `count` is its error.
    void AddResult(const rados_object_list_item *items, int count) {
        std::lock_guard<std::mutex> lock(mutex);
        if (count < 0) {
            code = count;
        }
        for (int i = 0; i < count; i++) {
            const std::string name(items[i].oid, items[i].oid_length);
            if (name.compare(0, prefix.size(), prefix) == 0) {
                names.push_back(name);
            }
        }
        stopped = code < 0 || names.size() >= limit;
    }
};

void ListPart(Listing &listing, size_t part, size_t parts) {
    const rados_ioctx_t io = listing.io;
    const Cursor first(io, rados_object_list_begin(io)), last(io, rados_object_list_end(io));
    Cursor current(io, rados_object_list_begin(io)), finish(io, rados_object_list_begin(io));
    rados_object_list_slice(io, first.Get(), last.Get(), part, parts, current.Address(), finish.Address());
    std::array<rados_object_list_item, NAMES_PER_REQUEST> items;
    while (!listing.stopped && rados_object_list_cursor_cmp(io, current.Get(), finish.Get()) < 0) {
        const int count = rados_object_list(io, current.Get(), finish.Get(), items.size(), nullptr, 0,
                                            items.data(), current.Address());
        listing.AddResult(items.data(), count);
        rados_object_list_free(static_cast<size_t>(std::max(count, 0)), items.data());
    }
}

} // namespace

int ListObjects(std::shared_ptr<const void> owner, rados_ioctx_t io, const std::string &prefix, size_t limit,
                std::vector<std::string> &names) {
    auto listing = std::make_shared<Listing>(std::move(owner), io, prefix, limit);
    for (size_t part = 0; part < THREADS; part++) {
        std::thread([listing, part] {
            ListPart(*listing, part, THREADS);
            if (--listing->running == 0) {
                listing->end.Set();
            }
        }).detach();
    }
    bool interrupted = false;
    listing->end.Wait([&] {
        interrupted = listing->stopped = true;
        listing->end.Set(); // librados cannot cancel a listing: its threads end by themselves
    });
    std::lock_guard<std::mutex> lock(listing->mutex);
    names.insert(names.end(), std::make_move_iterator(listing->names.begin()),
                 std::make_move_iterator(listing->names.end()));
    return interrupted ? -ECANCELED : listing->code;
}

} // namespace rawduck_ceph

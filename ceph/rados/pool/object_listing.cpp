#include "ceph/rados/pool/object_listing.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <mutex>

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

struct Listing {
    const rados_ioctx_t io;
    const std::string &prefix;
    const size_t limit;
    std::mutex mutex; //!< guards names and code; no other lock is taken while it is held
    std::vector<std::string> &names;
    int code = 0; //!< of the last failed request
    std::atomic<bool> stopped{false};

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

int ListObjects(rados_ioctx_t io, const std::string &prefix, size_t limit, std::vector<std::string> &names) {
    Listing listing{io, prefix, limit, {}, names};
    std::vector<std::future<void>> parts;
    for (size_t part = 1; part < THREADS; part++) {
        parts.push_back(
            std::async(std::launch::async, [&listing, part] { ListPart(listing, part, THREADS); }));
    }
    ListPart(listing, 0, THREADS);
    for (std::future<void> &part : parts) {
        part.get();
    }
    return listing.code;
}

} // namespace rawduck_ceph

// Responses that are kept, each with the turn of the conversation that made it.
//
// A response names the one that it continues, and the conversation before it is read along that
// chain, so that nothing is kept twice. One that was deleted, or that gave way for its age or for
// room, is no longer found. What later ones continue stays for them, hidden, and goes with the last
// that needs it. So every hidden response has one that is not hidden behind it.
//
// An owner keeps so many responses and bytes: the oldest give way to a new one. Their bytes count
// as those of files do (file_budget.h). What belongs to a key that was revoked goes within a second
// or so, and what is older than its lifetime is not found and goes as soon. A lifetime is time in
// which servers run here, so that no calendar that jumps ends one.
//
// Thread-safety: any thread; answers come on the store's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/store/file_budget.h"
#include "server/store/records.h"
#include "server/store/store_thread.h"

namespace skein {

struct ResponseLimits {
  uint64_t per_key = 10'000;  // 0: none are kept
  uint64_t bytes_per_key = uint64_t{256} << 20;
  uint64_t lifetime_days = 30;
  // A conversation that can be continued has at most so many responses, and bytes of their inputs
  // and outputs: as many as a request that brings all of them could have.
  uint64_t turns = 4'096;
  uint64_t conversation_bytes = uint64_t{8} << 20;
  // Bytes of all that wait for the disk.
  uint64_t waiting_bytes = uint64_t{64} << 20;

  bool keep_any() const { return per_key > 0 && bytes_per_key > 0; }
};

// All of it is JSON text. The response is `head`, `output` and `tail` in one.
struct NewResponse {
  std::string id;
  std::string owner;
  std::string previous;  // the id of the one that it continues; empty: none
  std::string input;     // a list of items
  std::string output;    // a list of items
  std::string head;
  std::string tail;

  uint64_t bytes() const { return input.size() + output.size() + head.size() + tail.size(); }
};

struct ConversationTurn {
  std::string id;     // of the response
  std::string input;  // lists of items, as JSON text
  std::string output;
};

class ResponseStore {
 public:
  ResponseStore(StoreThread& thread, FileBudget& budget, const ResponseLimits& limits,
                std::function<int64_t()> steady_time_s)
      : thread_(thread),
        budget_(budget),
        limits_(limits),
        steady_s_(std::move(steady_time_s)),
        opened_s_(steady_s_()) {}

  // Somebody waits for it, so that it is not held back for a group of others. kNotFound: the one
  // that it continues was removed meanwhile, or its key revoked. kOutOfRange: with its conversation
  // it has more bytes than an owner may keep. kResourceExhausted: too much waits for the disk.
  // Others as FileBudget::take_bytes() and the disk say. The log hears of it now and then.
  void add(NewResponse response, DoneStatus done);
  // The response as JSON text.
  void get(const std::string& id, const Scope& scope, Done<std::string> done);
  // From the first turn to the response's own. kOutOfRange: more than can be continued.
  void conversation(const std::string& id, const Scope& scope,
                    Done<std::vector<ConversationTurn>> done);
  // Each of these by itself, in any order; those that are not found are left out. kOutOfRange: more
  // bytes than a conversation may have.
  void turns(std::vector<std::string> ids, const Scope& scope,
             Done<std::vector<ConversationTurn>> done);
  void remove(const std::string& id, const Scope& scope, DoneStatus done);

  // Nothing is added or continued from now on (kUnavailable, on the caller's thread); sleeps until
  // what was asked for is answered, so that what `done` uses may go.
  void close();

 private:
  friend class Store;
  using Freed = std::map<std::string, uint64_t>;  // bytes, by owner

  struct Adding;
  void add_piece(const std::shared_ptr<Adding>& adding);
  // For as long as what is returned lives, close() waits, and that much is waiting; null after it.
  std::shared_ptr<void> enter(uint64_t bytes = 0);
  Status check_waiting(uint64_t bytes);
  void tell_unkept(const std::string& id, const Status& why);
  void settle(const Freed& freed, bool has_marked);
  int64_t lifetime_s() const;
  int64_t served_s() const { return served_before_s_ + steady_s_() - opened_s_; }
  int64_t oldest_s() const { return served_s() - lifetime_s(); }
  Status sweep_old(Database& db);
  Status note_time(Database& db);
  // On the store's thread, once and before anything is swept: how long servers have run here.
  Status read_time(Database& db);
  // On the store's thread: adds what there is to what each owner keeps.
  static Status count_bytes(Database& db, std::map<std::string, FileUse>& uses);
  // On the store's thread, now and then: removes some of what has to go.
  Status sweep(Database& db);
  Result<int64_t> sweep_some(Database& db, std::string_view condition, SqlValues values);
  // Keys have changed, or may have.
  void look_for_revoked() { may_be_revoked_ = true; }

  StoreThread& thread_;
  FileBudget& budget_;
  const ResponseLimits limits_;
  const std::function<int64_t()> steady_s_;
  const int64_t opened_s_;
  int64_t served_before_s_ = 0;  // by earlier servers, as far as they wrote it down
  int64_t next_note_s_ = 0;      // the store's thread's
  bool has_begun_ = false;       // the store's thread's; the time was read
  // Whether there may be something to sweep: a server without work asks the database nothing.
  std::atomic<int64_t> next_expiry_s_{0};  // nothing is too old before
  std::atomic<bool> may_be_revoked_{true};
  std::atomic<bool> may_be_orphaned_{true};  // an add has ended between its pieces
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t under_way_ = 0;     // mutex_; adds, and conversations that are read
  uint64_t waiting_ = 0;     // mutex_; bytes of what is added
  int64_t next_word_s_ = 0;  // mutex_; of the log about what is not kept
  uint64_t untold_ = 0;      // mutex_
  bool is_closed_ = false;   // mutex_
};

}  // namespace skein

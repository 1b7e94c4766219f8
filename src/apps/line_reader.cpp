#include "apps/line_reader.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>
#include <utility>

namespace skein::apps {
namespace {

void strip_end(std::string& line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
}

class PlainReader final : public LineReader {
 public:
  ~PlainReader() override { std::free(buffer_); }

  Event read(std::string& line) override {
    errno = 0;
    const ssize_t size = ::getline(&buffer_, &capacity_, stdin);
    if (size < 0) return errno == EINTR ? Event::kInterrupt : Event::kEnd;
    line.assign(buffer_, static_cast<size_t>(size));
    strip_end(line);
    return Event::kLine;
  }
  bool edits() const override { return false; }

 private:
  char* buffer_ = nullptr;
  size_t capacity_ = 0;
};

class EditingReader final : public LineReader {
 public:
  explicit EditingReader(std::string prompt) : prompt_(std::move(prompt)) {
    // Characters beyond ASCII need a locale that knows them.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history_ = history_init();
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    edit_ = el_init("skein", stdin, stdout, stderr);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(
        edit_, EL_PROMPT, +[](EditLine* edit) {
          void* self = nullptr;
          el_get(edit, EL_CLIENTDATA, &self);
          return static_cast<EditingReader*>(self)->prompt_.data();
        });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_BIND, "^@", "ed-ignore", nullptr);  // Ctrl-D before the prompt
    el_source(edit_, nullptr);                           // the user's ~/.editrc
  }
  ~EditingReader() override {
    el_end(edit_);
    history_end(history_);
  }

  Event read(std::string& line) override {
    int size = 0;
    errno = 0;
    const char* text = el_gets(edit_, &size);
    if (text == nullptr || size <= 0) {
      if (errno != EINTR) return Event::kEnd;
      el_reset(edit_);
      return Event::kInterrupt;
    }
    line.assign(text, static_cast<size_t>(size));
    strip_end(line);
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return Event::kLine;
  }
  bool edits() const override { return true; }

 private:
  std::string prompt_;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> LineReader::create(const std::string& prompt) {
  if (::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {
    return std::make_unique<EditingReader>(prompt);
  }
  return std::make_unique<PlainReader>();
}

}  // namespace skein::apps

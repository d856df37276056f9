# llmq: one Makefile, no recursion.  `make help` lists the targets.
#
# Everything built goes under build/<flavour>/, so a sanitizer build never shares an object with a
# release build.  `make` and `make test` first look for the libraries they need and, as root, install
# what is missing; anyone else is told the one line to type.

.DEFAULT_GOAL := all
FLAVOUR ?= release
B       := build/$(FLAVOUR)
V       ?= 0
Q       := $(if $(filter 0,$(V)),@)
say      = $(if $(filter 0,$(V)),@printf '  %-6s %s\n' '$(1)' '$(2)';)

CC      ?= cc
PREFIX  ?= /usr/local
VERSION := 0.1.0
# A tarball of `make dist` has commit and time in a file; that one is asked first, since a tarball may lie in somebody
# else's repository.
COMMIT  := $(shell sed -n 1p dist-commit 2>/dev/null || git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
EPOCH    = $(shell sed -n 2p dist-commit 2>/dev/null || git log -1 --format=%ct 2>/dev/null || echo 0)
DEB_MAINTAINER ?= llmq maintainers <maintainers@llmq.invalid>

# ---- packages: the one list ---------------------------------------------------------------
# What the build and the tests need beyond git and make (docs/DEPENDENCIES.md says what each is for).
PACKAGES      := gcc libc6-dev pkg-config zlib1g-dev libjansson-dev nettle-dev libpcre2-dev libutf8proc-dev \
                 check python3
PACK_PACKAGES := dpkg-dev binutils xz-utils
LINT_PACKAGES := shellcheck mandoc clang-tidy clang-format g++
LIBS_PC       := jansson zlib nettle libpcre2-8 libutf8proc check

.PHONY: setup setup-lint setup-pack
# A probe, not a package query: a library from anywhere is as good.
setup:                         ## install what is missing (root), or say how
	$(Q)tests/lint/setup.sh '$(CC) pkg-config python3' '$(LIBS_PC)' '$(PACKAGES)'
setup-lint: setup
	$(Q)tests/lint/setup.sh 'shellcheck mandoc clang-tidy c++' '' '$(LINT_PACKAGES)'

setup-pack: setup
	$(Q)tests/lint/setup.sh 'dpkg-shlibdeps strip xz' '' '$(PACK_PACKAGES)'

# ---- flags ---------------------------------------------------------------------------------
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wundef \
           -Wwrite-strings -Werror
BASE    := -std=c11 -ffp-contract=off -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -I$(B)/gen -fopenmp -fvisibility=hidden \
           -ffile-prefix-map=$(CURDIR)=. \
           -MMD -MP $(WARN)
LDLIBS  := -ljansson -lz -lnettle -lpcre2-8 -lutf8proc -lm -pthread

OPT_release := -O2 -g -DNDEBUG
OPT_debug   := -O0 -g3
OPT_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
OPT_tsan    := -O1 -g -fsanitize=thread
OPT_cov     := -O0 -g --coverage
ALL_CFLAGS   = $(BASE) $(OPT_$(FLAVOUR)) $(CFLAGS)
ALL_LDFLAGS  = -fopenmp $(filter -fsanitize=% --coverage,$(OPT_$(FLAVOUR))) $(LDFLAGS)

# ---- what is in each layer (bottom to top) ---------------------------------------------------
common_C   := $(wildcard common/*.c)
format_C   := $(wildcard format/*.c)
convert_C  := $(wildcard convert/*.c)
runner_C   := $(wildcard runner/*.c runner/model/*.c runner/engine/*.c runner/text/*.c runner/cpu/*.c)
quantize_C := $(wildcard quantize/*.c)
cli_C      := $(filter-out cli/main.c,$(wildcard cli/*.c))

LIB_OBJ  := $(patsubst %.c,$(B)/%.o,$(common_C) $(format_C) $(convert_C) $(runner_C) $(quantize_C) $(cli_C))
UNIT_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/unit/*.c))
KERN_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/kernels/*.c))
GOLD_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/golden/*.c))

# ---- instruction sets by file name: *_avx2.c, *_avx512.c ---------------------------------------
# A kernel file states its instruction set in its name and nowhere else; no other file is compiled
# with -m flags, so one binary runs on any x86-64.
ISA_avx2   := -O3 -mavx2 -mfma -mf16c
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
isa_of      = $(foreach i,avx2 avx512,$(if $(filter %_$(i),$(basename $(1))),$(ISA_$(i))))

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) $(call isa_of,$<) -c $< -o $@

# Rebuild everything in a flavour when its flags change, not when they do not.
FLAGS_NOW := $(CC) $(ALL_CFLAGS)
$(B)/flags: FORCE | setup
	@mkdir -p $(@D); printf '%s\n' '$(FLAGS_NOW)' | cmp -s - $@ || printf '%s\n' '$(FLAGS_NOW)' > $@

# The version stands in one generated header, so that only its reader is rebuilt on a commit.
$(B)/gen/version.h: FORCE | setup
	@mkdir -p $(@D); printf '#define LLMQ_VERSION "%s"\n#define LLMQ_COMMIT "%s"\n' '$(VERSION)' '$(COMMIT)' > $@.new; \
	  cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/cli/about.o: $(B)/gen/version.h

# The calibration text, mixed, as the numbers of a C array.
CALIB_TEXT := $(wildcard calib_data/*.txt)
$(B)/gen/calib_builtin.inc: $(CALIB_TEXT) calib_data/mix.awk
	@mkdir -p $(@D)
	$(call say,GEN,$@)LC_ALL=C awk -f calib_data/mix.awk $(CALIB_TEXT) | od -An -v -tu1 | sed 's/[0-9][0-9]*/&,/g' > $@.new && mv $@.new $@
$(B)/runner/text/builtin.o: $(B)/gen/calib_builtin.inc

link = $(call say,LINK,$@)$(CC) $(ALL_LDFLAGS) -o $@ $(1) $(LDLIBS) $(2)

$(B)/libllmq.a: $(LIB_OBJ)
	$(call say,AR,$@)rm -f $@ && ar crs $@ $^
$(B)/llmq: $(B)/cli/main.o $(B)/libllmq.a
	$(call link,$^)
$(B)/unit: $(UNIT_OBJ) $(B)/libllmq.a
	$(call link,$^,$$(pkg-config --libs check))
$(B)/checkkern: $(KERN_OBJ) $(B)/libllmq.a
	$(call link,$^)
$(B)/checklogits $(B)/checkchat: $(B)/%: $(B)/tests/golden/%.o $(B)/libllmq.a
	$(call link,$^)

.PHONY: all demo test unit kernels golden format-test cli-test asan tsan lint layers docs-sync headers banned help clean \
        install uninstall install-test dist dist-test deb deb-test bench parity format FORCE
all: $(B)/llmq                 ## build build/release/llmq
demo: $(B)/llmq                ## quantize the embedded model, measure it, let it write
	$(Q)calib_data/demo/demo.sh $(B)/llmq build/demo
test: unit kernels format-test golden cli-test install-test layers banned docs-sync headers  ## everything that needs no network
	@echo "make test: all passed"
unit: $(B)/unit                ## Check unit tests
	$(Q)$(B)/unit
kernels: $(B)/checkkern        ## every instruction set against the scalar reference
	$(Q)$(B)/checkkern
format-test: $(B)/llmq         ## files that must load and files that must be refused
	$(Q)tests/format/run.sh $(B)/llmq
golden: $(B)/llmq $(B)/checklogits $(B)/checkchat ## parity with transformers and tokenizers on committed fixtures
	$(Q)tests/golden/run.sh $(B)/llmq
cli-test: $(B)/llmq            ## the command line: outputs, exit statuses, failures
	$(Q)tests/cli/run.sh $(B)/llmq
docs-sync: $(B)/llmq           ## option tables against man pages
	$(Q)tests/lint/docs_sync.sh $(B)/llmq
layers:                        ## who may include whom
	$(Q)tests/lint/layers.sh
banned:                        ## calls that only one file may make
	$(Q)tests/lint/banned.sh
headers: | setup               ## every header compiles alone
	$(Q)tests/lint/headers.sh
lint: setup-lint layers banned docs-sync headers  ## all of those, clang-tidy, shellcheck, mandoc
	$(Q)tests/lint/lint.sh
asan: ; +$(Q)$(MAKE) --no-print-directory FLAVOUR=asan test  ## the tests under AddressSanitizer and UBSan
tsan: ; +$(Q)TSAN_OPTIONS="suppressions=tests/lint/tsan.supp history_size=7" CK_FORK=no $(MAKE) --no-print-directory FLAVOUR=tsan unit  ## unit tests under ThreadSanitizer
parity: $(B)/llmq              ## token ids against the tokenizers library (SHARED=folder of tokenizers)
	$(Q)tests/golden/parity.sh $(B)/llmq '$(SHARED)'
bench: $(B)/llmq $(B)/checkkern  ## kernel speed; tests/bench/*.sh compare whole runs
	$(Q)$(B)/checkkern --bench
format:                        ## clang-format everything
	$(Q)find common format convert quantize runner cli tests -name '*.[ch]' | xargs clang-format -i
help:                          ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

# ---- installing: one list of "source target" pairs, from which uninstall knows what to remove -----------------
BASHDIR    := share/bash-completion/completions
ZSHDIR     := share/zsh/site-functions
FISHDIR    := share/fish/vendor_completions.d
DOC_FILES  := README.md CHANGELOG.md LICENSE $(wildcard docs/*.md)
COMPLETION := $(B)/completion/llmq.bash $(B)/completion/llmq.zsh $(B)/completion/llmq.fish
INSTALLED  := $(B)/llmq:bin/llmq \
              $(foreach m,$(wildcard docs/man/*.1),$(m):share/man/man1/$(notdir $(m))) \
              $(foreach m,$(wildcard docs/man/*.5),$(m):share/man/man5/$(notdir $(m))) \
              $(foreach d,$(DOC_FILES),$(d):share/doc/llmq/$(notdir $(d))) \
              $(B)/completion/llmq.bash:$(BASHDIR)/llmq $(B)/completion/llmq.zsh:$(ZSHDIR)/_llmq \
              $(B)/completion/llmq.fish:$(FISHDIR)/llmq.fish

$(COMPLETION): $(B)/completion/llmq.%: $(B)/llmq
	@mkdir -p $(@D); $(B)/llmq completion $* > $@.new && mv $@.new $@
install: all $(COMPLETION)     ## binary, man pages, documents, completions under $(DESTDIR)$(PREFIX)
	$(Q)for pair in $(INSTALLED); do \
	  mode=644; [ "$${pair#*:}" != bin/llmq ] || mode=755; \
	  install -D -m$$mode "$${pair%:*}" "$(DESTDIR)$(PREFIX)/$${pair#*:}" || exit 1; \
	done
	@echo "make install: $(words $(INSTALLED)) files under $(DESTDIR)$(PREFIX)"
uninstall:                     ## what install put there, and nothing else
	$(Q)for pair in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/$${pair#*:}"; done
	$(Q)rmdir "$(DESTDIR)$(PREFIX)/share/doc/llmq" 2> /dev/null || true
install-test: all              ## install and uninstall in a folder of their own
	$(Q)tests/package/install.sh '$(MAKE)' '$(FLAVOUR)'

# ---- giving it away ------------------------------------------------------------------------------------------------
# Both are the same bytes for the same commit (and, for the package, the same compiler and libraries).
DIST := build/dist/llmq-$(VERSION).tar.gz
DEB  := build/deb/llmq_$(VERSION)_amd64.deb
dist:                          ## a source tarball of the last commit, under build/dist
	$(Q)git rev-parse -q --verify HEAD > /dev/null || { echo "make dist: no git repository here, expected one" >&2; exit 1; }
	@mkdir -p $(dir $(DIST))
	$(Q)git -c tar.umask=0022 archive --format=tar --prefix=llmq-$(VERSION)/ --add-virtual-file="llmq-$(VERSION)/dist-commit:$$(git \
	  describe --always --abbrev=12 HEAD; git log -1 --format=%ct)" HEAD > $(DIST).tmp
	$(Q)gzip -9n < $(DIST).tmp > $(DIST) && rm $(DIST).tmp
	@echo "make dist: $(DIST)$$(git diff --quiet HEAD || echo ', without what is not committed')"
dist-test:                     ## the tarball is reproducible, and builds and tests outside git
	$(Q)tests/package/dist.sh '$(MAKE)' $(VERSION)
deb: setup-pack                ## a Debian package, under build/deb
	$(Q)rm -rf build/deb && mkdir -p build/deb
	$(Q)$(MAKE) --no-print-directory FLAVOUR=release install DESTDIR=$(CURDIR)/build/deb/root PREFIX=/usr ZSHDIR=share/zsh/vendor-completions
	$(Q)packaging/deb.sh build/deb/root $(VERSION) $(EPOCH) '$(DEB_MAINTAINER)' $(DEB)
	@echo "make deb: $(DEB)"
deb-test: deb                  ## as root, with network: the package in a bare Debian, and gone again without a trace
	$(Q)tests/package/deb.sh $(DEB)
clean:                         ## remove build/
	rm -rf build

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(UNIT_OBJ) $(KERN_OBJ) $(GOLD_OBJ) $(B)/cli/main.o)

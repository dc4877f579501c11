# make            programs in build/bin
# make test       unit tests of every folder, then tests/ (programs must be built)
# make check      the shared-memory protocol's models (needs spin)
# make bench      timings, never part of the tests
# make fuzz       libFuzzer targets, a short run each (needs clang; FUZZ_SECONDS=n)
# make SAN=address|thread|undefined test    the same in build/SAN, with a sanitizer
# make install PREFIX=/usr/local
# Cards: where nvcc is found, conclave-gpu gets the CUDA code: for the cards of this machine, with CARDS=1
# or on request for others (CUDA_ARCH="80 90"; CARDS=1 alone: all kinds, what releases carry). CARDS=0, or
# no card here: without, and `make` says so.
# make cuda       CUDA kernels and their tests in build/cuda (needs nvcc; CUDA_ARCH=90: one kind of
#                 card, quick; else those of the cards here, or, without any, all that releases carry)
# make cuda-kernels   those of kernels/ alone: they need no library
# make cuda-test  runs the CUDA tests; without a card they are skipped, and say so
# make cuda-bench builds and runs the CUDA timings
#
# Every folder's files are found by name: X.c is part of the folder's library, X_test.c a test
# program, X_fuzz.c a fuzz target, X_bench.c a measuring program, main.c a program's entry,
# X_avx2.c, X_avx512.c and X_vbmi.c are compiled for that instruction set and chosen at run time. X.cu, X_test.cu
# and X_bench.cu are the same for cards, and nothing but `make cuda` looks at them; X.cuh is included
# by .cu files alone.

SAN ?=
B := build$(if $(SAN),/$(SAN))
PREFIX ?= /usr/local
CC ?= gcc
CARDS ?= auto
CLANG ?= clang
FUZZ_SECONDS ?= 10

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla -Wimplicit-fallthrough -Werror
# with a sanitizer: enough for a report, and compiled in half the time
OPT := $(if $(SAN),-O1 -g1,-O2 -g)
# -ffp-contract=off everywhere: a fused multiply-add where the source has two operations changes bits
BASE := -std=gnu11 $(OPT) -ffp-contract=off -fno-math-errno -pthread -I. -I$(B) $(WARN)
ifeq ($(SAN),address)
BASE += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(SAN),undefined)
BASE += -fsanitize=undefined -fno-sanitize-recover=all
else ifeq ($(SAN),thread)
BASE += -fsanitize=thread
endif
ifneq ($(SAN),) # these analyses err on instrumented code
BASE += -Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds
endif
CFLAGS += $(BASE)
LDLIBS := -luring -lnuma -lxxhash -lyajl -levent_openssl -levent_extra -levent_core -lssl -lcrypto -lm

# the reference kernels are the definition: compiled as written (kernels/ARITHMETIC.md, rule 2)
REF := -fno-tree-vectorize
AVX2 := $(if $(SAN),,-O3) -mavx2 -mfma -mf16c
AVX512 := $(if $(SAN),,-O3) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c
VBMI := $(AVX512) -mavx512vbmi -mgfni

SRC := $(sort $(wildcard kernels/*.c kernels/*/*.c shm/*.c coordinator/*.c coordinator/*/*.c \
	coordinator/*/*/*.c cpu-worker/*.c pager/*.c gpu-worker/*.c))
HDR := $(sort $(wildcard kernels/*.h kernels/*/*.h shm/*.h coordinator/*.h coordinator/*/*.h \
	coordinator/*/*/*.h cpu-worker/*.h pager/*.h gpu-worker/*.h))
CUDA_SRC := $(sort $(wildcard kernels/*/*.cu gpu-worker/*.cu))
CUDA_HDR := $(sort $(wildcard kernels/*.cuh kernels/*/*.cuh gpu-worker/*.cuh))
pick = $(filter $(1),$(SRC))
LIBSRC := $(filter-out %_test.c %_fuzz.c %_bench.c %_rig.c %/main.c,$(SRC))
KERNELS := $(filter kernels/%,$(LIBSRC))
SHM := $(filter shm/%,$(LIBSRC))
TRUNK := $(filter coordinator/trunk/exec/%,$(LIBSRC))
COORD := $(filter-out $(TRUNK),$(filter coordinator/%,$(LIBSRC)))
CPUW := $(filter cpu-worker/%,$(LIBSRC))
GPUW := $(filter gpu-worker/%,$(LIBSRC))
PAGER := $(filter pager/%,$(LIBSRC))
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))

# CUDA (kernels/ARITHMETIC.md, rule 2): the runtime is linked in, the driver is looked for when a
# program asks for a card, so that the same program starts on a machine without one. Host code of
# .cu files needs no C++ library.
CUDA ?= /usr/local/cuda
NVCC ?= $(firstword $(wildcard $(CUDA)/bin/nvcc) nvcc)
ASKED_ARCH := $(filter-out undefined default,$(origin CUDA_ARCH))
ifeq ($(CARDS)$(ASKED_ARCH),auto) # the kinds of this machine's cards
CUDA_ARCH := $(sort $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d .))
ASKED_ARCH := $(CUDA_ARCH)
endif
ifeq ($(strip $(CUDA_ARCH)),)
CUDA_ARCH := 75 80 86 89 90 100 120
endif
# does conclave-gpu get the CUDA code?
WITH_CUDA := $(if $(filter 0,$(CARDS))$(SAN),,$(if $(filter 1,$(CARDS))$(ASKED_ARCH),$(if $(shell command -v $(NVCC)),1)))
comma := ,
# 90 is built as 90a, which alone has the matrix instruction that prompts use there (kernels/gemm/hopper.cuh)
CUDA_CODE := $(foreach a,$(patsubst 90,90a,$(CUDA_ARCH)),-gencode arch=compute_$(a)$(comma)code=sm_$(a))
ifneq ($(words $(CUDA_ARCH)),1) # cards that come later compile this at their first start
CUDA_CODE += -gencode arch=compute_$(lastword $(CUDA_ARCH))$(comma)code=compute_$(lastword $(CUDA_ARCH))
endif
NVCCFLAGS += -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true \
	-Werror all-warnings -I. -I$(B) $(CUDA_CODE) -Xcompiler -ffp-contract=off \
	-Xcompiler -fno-exceptions -Xcompiler -fno-rtti -Xcompiler -fno-threadsafe-statics \
	-Xcompiler -Wall -Xcompiler -Wextra
CUDA_LIBS := -L$(CUDA)/lib64 -lcudart_static -ldl -lrt -lpthread -lm
CUDA_LIBSRC := $(filter-out %_test.cu %_bench.cu,$(CUDA_SRC))
CUDA_TESTS := $(patsubst %.cu,$(B)/cuda/test/%,$(filter %_test.cu,$(CUDA_SRC)))
CUDA_BENCHES := $(patsubst %.cu,$(B)/cuda/bench/%,$(filter %_bench.cu,$(CUDA_SRC)))

PROGS := $(B)/bin/conclave $(B)/bin/conclave-cpu $(B)/bin/conclave-gpu \
	$(B)/bin/conclave-pager
TESTS := $(patsubst %.c,$(B)/test/%,$(call pick,%_test.c))
BENCHES := $(patsubst %.c,$(B)/bench/%,$(call pick,%_bench.c))
FUZZERS := $(patsubst %.c,$(B)/fuzz/%,$(call pick,%_fuzz.c))
LIBRARY := $(COORD) $(TRUNK) $(CPUW) $(GPUW) $(PAGER) $(SHM) $(KERNELS)
ifeq ($(SAN),thread) # it sees threads of one process, and no OpenMP: the tests of shm/ alone
PROGS :=
TESTS := $(filter $(B)/test/shm/%,$(TESTS))
LIBRARY := $(SHM)
endif

all: $(PROGS)

# one id for the whole build: programs of another build refuse each other
ID_FILES := $(SRC) $(HDR) $(CUDA_SRC) $(CUDA_HDR) Makefile
$(B)/build_id.h: $(ID_FILES)
	@mkdir -p $(@D)
	@printf '#define BUILD_ID "%.16s"\n' "$$(cat $(ID_FILES) | sha256sum)" > $@.new
	@cmp -s $@.new $@ || mv $@.new $@; rm -f $@.new

# flags by what a file is
isa = $(if $(filter %_avx2.c,$(1)),$(AVX2),$(if $(filter %_avx512.c,$(1)),$(AVX512),\
	$(if $(filter %_vbmi.c,$(1)),$(VBMI),$(if $(filter kernels/%,$(1)),$(REF)))))
# the only file that sees the id, so that one changed line does not rebuild everything
$(B)/obj/shm/build_id.o: shm/build_id.c $(B)/build_id.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
# the page's files lie in the program as they are
$(B)/obj/coordinator/serve/page/files.o: $(wildcard coordinator/serve/page/files/*)
$(B)/obj/shm/team.o: CFLAGS += -fopenmp
$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(call isa,$<) -MMD -MP -c -o $@ $<

ifneq ($(PROGS),)
$(B)/bin/conclave: $(call obj,coordinator/main.c $(COORD) $(TRUNK) $(SHM) $(KERNELS))
$(B)/bin/conclave-cpu: $(call obj,cpu-worker/main.c $(CPUW) $(SHM) $(KERNELS))
$(B)/bin/conclave-gpu: $(call obj,gpu-worker/main.c $(if $(WITH_CUDA),$(filter-out %_none.c,$(GPUW)),$(GPUW)) \
	$(CPUW) $(TRUNK) $(SHM) $(KERNELS)) $(if $(WITH_CUDA),$(patsubst %.cu,$(B)/cuda/obj/%.o,$(CUDA_LIBSRC))) $(B)/with_cuda
$(B)/bin/conclave-gpu: LDLIBS += $(if $(WITH_CUDA),$(CUDA_LIBS))
# which of the two it is: another choice links anew
$(B)/with_cuda: FORCE
	@mkdir -p $(@D)
	@echo "$(if $(WITH_CUDA),sm: $(CUDA_ARCH),no CUDA)" > $@.new; cmp -s $@.new $@ || { mv $@.new $@; echo \
	    "conclave-gpu: $(if $(WITH_CUDA),for cards of kind $(CUDA_ARCH),without CUDA (CARDS=1 for all cards$(comma) CUDA_ARCH=90 for one kind))"; }; rm -f $@.new
$(B)/bin/conclave-pager: $(call obj,pager/main.c $(PAGER) $(SHM))
$(PROGS):
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -fopenmp -o $@ $(filter %.o %.a,$^) $(LDLIBS)
endif

# a test of a folder links that folder and what it may depend on
$(B)/lib/all.a: $(call obj,$(LIBRARY))
	@mkdir -p $(@D); rm -f $@
	ar rcs $@ $^
$(B)/test/%: $(B)/obj/%.o $(B)/lib/all.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -fopenmp -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)
# X_rig.c: what several tests are made of, in no program
$(B)/test/gpu-worker/calls_rig_test $(B)/cuda/test/gpu-worker/calls_cuda_test \
    $(B)/cuda/bench/gpu-worker/run_cuda_bench: $(B)/obj/gpu-worker/calls_rig.o
$(B)/bench/%: $(B)/obj/%.o $(B)/lib/all.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -fopenmp -o $@ $^ $(LDLIBS)
# fuzz targets name the sources they need in a line "FUZZ: a.c b.c"
$(B)/fuzz/%: %.c $(LIBSRC) $(HDR) $(B)/build_id.h
	@mkdir -p $(@D)
	$(CLANG) -std=gnu11 -O1 -g -ffp-contract=off -I. -I$(B) -fsanitize=fuzzer,address,undefined \
	    -fno-sanitize-recover=all -o $@ $< $$(sed -n 's/^.*FUZZ: *//p' $<) -lm

# what conclave-gpu says it was built for (gpu-worker/probe.h)
PROBE_ARCHS := $(strip $(CUDA_ARCH) $(if $(filter-out 1,$(words $(CUDA_ARCH))),$(lastword $(CUDA_ARCH))+ptx))
$(B)/cuda/obj/gpu-worker/probe_cuda.o: NVCCFLAGS += -DPROBE_ARCHS='"$(PROBE_ARCHS)"'
$(B)/cuda/obj/%.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -MMD -MP -c -o $@ $<
$(B)/cuda/lib/cuda.a: $(patsubst %.cu,$(B)/cuda/obj/%.o,$(CUDA_LIBSRC))
	@mkdir -p $(@D); rm -f $@
	ar rcs $@ $^
$(B)/cuda/lib/kernels_cuda.a: $(patsubst %.cu,$(B)/cuda/obj/%.o,$(filter kernels/%,$(CUDA_LIBSRC)))
	@mkdir -p $(@D); rm -f $@
	ar rcs $@ $^
# kernels know nothing but kernels: their tests and timings need no other library
$(B)/cuda/lib/kernels.a: $(call obj,$(KERNELS))
	@mkdir -p $(@D); rm -f $@
	ar rcs $@ $^
link_cuda = @mkdir -p $(@D); $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^)
$(B)/cuda/test/kernels/%: $(B)/cuda/obj/kernels/%.o $(B)/cuda/lib/kernels_cuda.a $(B)/cuda/lib/kernels.a
	$(link_cuda) $(CUDA_LIBS)
$(B)/cuda/bench/kernels/%: $(B)/cuda/obj/kernels/%.o $(B)/cuda/lib/kernels_cuda.a $(B)/cuda/lib/kernels.a
	$(link_cuda) $(CUDA_LIBS)
$(B)/cuda/test/%: $(B)/cuda/obj/%.o $(B)/cuda/lib/cuda.a $(B)/lib/all.a
	$(link_cuda) -fopenmp $(LDLIBS) $(CUDA_LIBS)
$(B)/cuda/bench/%: $(B)/cuda/obj/%.o $(B)/cuda/lib/cuda.a $(B)/lib/all.a
	$(link_cuda) -fopenmp $(LDLIBS) $(CUDA_LIBS)

# programs in plain C that need a card
CARD_BENCHES := $(B)/cuda/bench/gpu-worker/card_pass_bench
$(CARD_BENCHES): $(B)/cuda/bench/%: $(B)/obj/%.o $(patsubst %.cu,$(B)/cuda/obj/%.o,$(CUDA_LIBSRC)) $(B)/lib/all.a
	$(link_cuda) -fopenmp $(LDLIBS) $(CUDA_LIBS)

cuda: $(B)/cuda/lib/cuda.a $(CUDA_TESTS)
cuda-kernels: $(filter $(B)/cuda/test/kernels/% $(B)/cuda/bench/kernels/%,$(CUDA_TESTS) $(CUDA_BENCHES))
cuda-test: cuda
	@set -e; for t in $(CUDA_TESTS); do echo "$$t"; $$t; done
cuda-bench: $(CUDA_BENCHES) $(CARD_BENCHES)
	@set -e; for t in $(CUDA_BENCHES) $(CARD_BENCHES); do echo "$$t"; $$t; done

tests: $(TESTS)
fuzzers: $(FUZZERS)

test: all tests
	tests/run --build $(B) $(if $(SAN),--san $(SAN))
check:
	shm/model/check
bench: all $(BENCHES)
	tests/bench --build $(B)
fuzz: fuzzers
	tests/fuzz --build $(B) --seconds $(FUZZ_SECONDS)
install: all
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(PROGS) $(DESTDIR)$(PREFIX)/bin
compile_commands.json:
	bear -- $(MAKE) -B all
clean:
	rm -rf build

.PHONY: FORCE all cuda cuda-kernels cuda-test cuda-bench tests fuzzers test check bench fuzz install clean compile_commands.json
.SECONDARY:
# make reads what each object was made from
-include $(shell find $(B)/obj $(B)/cuda/obj -name '*.d' 2>/dev/null)

# The kinds of target that Tombolo has. Every folder's CMakeLists.txt uses these and nothing else.

option(TB_WERROR "Warnings are errors (presets set it; packagers need not)" OFF)
set(TB_CHECK_TURNS_DEFAULT OFF)
if(CMAKE_BUILD_TYPE MATCHES "^(Debug|RelWithDebInfo)$")
  set(TB_CHECK_TURNS_DEFAULT ON)
endif()
option(TB_CHECK_TURNS "Tables are checked each turn, and not only once a second" ${TB_CHECK_TURNS_DEFAULT})
option(TB_ASSERTS_TIMED "Asserts take their own time, for bench/asserts; nobody ships that" OFF)
option(TB_FUZZ "Build the fuzz targets (clang only)" OFF)
set(TB_LINKER "" CACHE STRING "Name for -fuse-ld=, used where there is such a linker (presets for tests: hundreds of programs)")
set(TB_SANITIZE "" CACHE STRING "Value for -fsanitize=, for example address,undefined")

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv>=1.44)
pkg_check_modules(SSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.5)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares>=1.18)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8.1)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1>=0.2.5)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.14)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.70)
pkg_check_modules(YAJL REQUIRED IMPORTED_TARGET yajl>=2.1)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3>=3.40)
# RDMA inside a site (intra/verbs) is built where rdma-core's headers are; everything works and
# passes without it.
set(TB_WITH_RDMA AUTO CACHE STRING "RDMA: AUTO (where rdma-core is found), ON (or fail) or OFF")
set(TB_RDMA FALSE)
if(NOT TB_WITH_RDMA STREQUAL "OFF")
  pkg_check_modules(VERBS IMPORTED_TARGET libibverbs librdmacm)
  if(VERBS_FOUND)
    set(TB_RDMA TRUE)
  elseif(TB_WITH_RDMA STREQUAL "ON")
    message(FATAL_ERROR "TB_WITH_RDMA=ON, and pkg-config finds no libibverbs and librdmacm (libibverbs-dev, librdmacm-dev)")
  endif()
endif()
# The system call filter of tombolod (gateway/sandbox) is built where libseccomp is; without it the
# daemon runs, and its log and status say that the filter is lacking.
set(TB_WITH_SECCOMP AUTO CACHE STRING "System call filter: AUTO (where libseccomp is found), ON (or fail) or OFF")
set(TB_SECCOMP FALSE)
if(NOT TB_WITH_SECCOMP STREQUAL "OFF")
  pkg_check_modules(SECCOMP IMPORTED_TARGET libseccomp>=2.5)
  if(SECCOMP_FOUND)
    set(TB_SECCOMP TRUE)
  elseif(TB_WITH_SECCOMP STREQUAL "ON")
    message(FATAL_ERROR "TB_WITH_SECCOMP=ON, and pkg-config finds no libseccomp 2.5 (libseccomp-dev)")
  else()
    message(STATUS "No libseccomp (libseccomp-dev): tombolod is built without its system call filter")
  endif()
endif()
# A build that is carried to other machines (the Python wheel) links neither of the two.
option(TB_VERBS_AT_RUN_TIME "open libibverbs and librdmacm at run time, with what the machine has" OFF)
# GPU memory (intra/cuda) is built where the headers of CUDA 12 or newer are; nothing of CUDA is
# linked, and everything works and passes without it.
set(TB_WITH_CUDA AUTO CACHE STRING "CUDA: AUTO (where its headers are found), ON (or fail) or OFF")
set(TB_CUDA_ARCHS "80;90;100" CACHE STRING "GPU architectures that kernels are compiled for; all others from 7.5 on have PTX")
set(TB_CUDA FALSE)
if(NOT TB_WITH_CUDA STREQUAL "OFF")
  find_path(TB_CUDA_INCLUDE cudaTypedefs.h HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(TB_CUDA_INCLUDE)
    file(STRINGS ${TB_CUDA_INCLUDE}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" cuda_version "${cuda_version}")
    if(cuda_version GREATER_EQUAL 12000)
      set(TB_CUDA TRUE)
      # The kernels want nvcc as well; without it cores do their work.
      get_filename_component(cuda_bin ${TB_CUDA_INCLUDE}/../bin ABSOLUTE)
      find_program(TB_NVCC nvcc HINTS ${cuda_bin})
    endif()
  endif()
  if(TB_WITH_CUDA STREQUAL "ON" AND NOT TB_CUDA)
    message(FATAL_ERROR "TB_WITH_CUDA=ON, and there are no headers of CUDA 12 or newer (cudaTypedefs.h; set CUDA_PATH)")
  endif()
endif()
if(BUILD_TESTING)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka>=1.1.5)
endif()

# The compiler's options of every target of ours. -march=native is never used: a binary built on one
# machine runs on another, and faster variants are chosen at run time (base/vector.h).
add_library(tb_flags INTERFACE)
target_compile_features(tb_flags INTERFACE c_std_17)
target_compile_definitions(tb_flags INTERFACE _GNU_SOURCE)
target_compile_options(tb_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings
  -Wundef -Wvla -Wimplicit-fallthrough -fno-common -fno-strict-aliasing
  $<$<BOOL:${TB_WERROR}>:-Werror>)
target_include_directories(tb_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
if(TB_ASSERTS_TIMED) # tb_base has the other half
  target_compile_options(tb_flags INTERFACE "SHELL:-include ${PROJECT_SOURCE_DIR}/bench/assert_times.h")
endif()
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)   # cores and shells go into libtombolo.so as well
set(CMAKE_C_VISIBILITY_PRESET hidden)
# Asserts are for our own mistakes and stay on: NDEBUG is never set.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
if(TB_LINKER)
  include(CheckLinkerFlag)
  check_linker_flag(C -fuse-ld=${TB_LINKER} TB_LINKER_WORKS)
  if(TB_LINKER_WORKS)
    string(APPEND CMAKE_EXE_LINKER_FLAGS " -fuse-ld=${TB_LINKER}") # not of libraries: gold lists their local TLS as dynamic symbols
  endif()
endif()
if(TB_SANITIZE)
  add_compile_options(-fsanitize=${TB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TB_SANITIZE})
endif()

if(TB_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link) # so that libFuzzer sees the branches of all our libraries
endif()

# tb_core(NAME SOURCES ... CORES ...): a library of pure logic. It may link other cores and nothing
# else; tests/fence/symbols.sh holds it to that.
set_property(GLOBAL PROPERTY TB_CORE_TARGETS "")
function(tb_core name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CORES")
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC tb_flags ${arg_CORES})
  set_property(GLOBAL APPEND PROPERTY TB_CORE_TARGETS ${name})
endfunction()

# tb_shell(NAME SOURCES ... LINKS ...): a library that touches the world.
function(tb_shell name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC tb_flags ${arg_LINKS} Threads::Threads)
endfunction()

# The programs of tests labelled tsan; target tsan_programs builds it and nothing else.
set_property(GLOBAL PROPERTY TB_TSAN_PROGRAMS "")

# How many times longer a test may take: an emulator runs it where another processor's are built.
set(TB_SLOWER 1)
if(CMAKE_CROSSCOMPILING)
  set(TB_SLOWER 10)
endif()

# tb_unit(NAME SOURCES ... LINKS ... [LABELS ...] [TIMEOUT S] [COST S] [EACH ...]): one cmocka
# program = one ctest, or one for each part of it, NAME.PART, that the program takes as its
# argument. The dearest run first, beside the others. Those of tests/unit have the label `unit`.
function(tb_unit name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;COST" "SOURCES;LINKS;LABELS;EACH")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${TB_SLOWER}")
  if(NOT arg_COST)
    set(arg_COST 0)
  endif()
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests/unit/")
    list(APPEND arg_LABELS unit)
  endif()
  string(REPLACE "." "_" target "test_${name}")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE tb_flags ${arg_LINKS} tb_scratch PkgConfig::CMOCKA Threads::Threads)
  set(tests)
  foreach(part ${arg_EACH})
    add_test(NAME ${name}.${part} COMMAND ${target} ${part})
    set_tests_properties(${name}.${part} PROPERTIES SKIP_RETURN_CODE 77) # a part that this machine has not
    list(APPEND tests ${name}.${part})
  endforeach()
  if(NOT tests)
    add_test(NAME ${name} COMMAND ${target})
    set(tests ${name})
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} LABELS "${arg_LABELS}")
  if("tsan" IN_LIST arg_LABELS)
    set_property(GLOBAL APPEND PROPERTY TB_TSAN_PROGRAMS ${target})
  endif()
endfunction()

# tb_fuzz(NAME SOURCES ... LINKS ...): a target fuzz_NAME around LLVMFuzzerTestOneInput, seeds in
# tests/fuzz/corpus/NAME. With TB_FUZZ it is a libFuzzer program; elsewhere tests/fuzz/replay.c runs
# the seeds, their truncations and a few thousand mutations. Either way ctest fuzz.NAME replays the
# seeds.
function(tb_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  add_executable(fuzz_${name} ${arg_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE tb_flags ${arg_LINKS})
  if(TB_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz.${name} COMMAND fuzz_${name} -runs=0 -rss_limit_mb=1024 ${corpus})
  else()
    if(NOT TARGET fuzz_replay) # the one main() of all of them
      add_library(fuzz_replay STATIC ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
      target_link_libraries(fuzz_replay PRIVATE tb_flags)
    endif()
    target_link_libraries(fuzz_${name} PRIVATE fuzz_replay)
    add_test(NAME fuzz.${name} COMMAND fuzz_${name} ${corpus})
  endif()
  math(EXPR seconds "120 * ${TB_SLOWER}")
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT ${seconds})
endfunction()

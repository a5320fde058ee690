# The ops, read from their list: src/ops/ops.def. A folder src/ops/<op>/ holds each one's files.
file(STRINGS ${PROJECT_SOURCE_DIR}/src/ops/ops.def op_lines REGEX "^OP\\(")
set(TEGULA_OPS "")
foreach(line IN LISTS op_lines)
  string(REGEX REPLACE "^OP\\(([a-z0-9_]+),.*" "\\1" op "${line}")
  list(APPEND TEGULA_OPS ${op})
endforeach()
list(REMOVE_DUPLICATES TEGULA_OPS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/ops.def)

# tegula_op_sources(<variable> <suffix>): src/ops/<op>/<op><suffix>.c of every op; a large op has <op>_cpu.c in a folder
# cpu/ of its own.
function(tegula_op_sources variable suffix)
  set(sources "")
  foreach(op IN LISTS TEGULA_OPS)
    set(source ${PROJECT_SOURCE_DIR}/src/ops/${op}/${op}${suffix}.c)
    if(suffix STREQUAL "_cpu" AND IS_DIRECTORY ${PROJECT_SOURCE_DIR}/src/ops/${op}/cpu)
      set(source ${PROJECT_SOURCE_DIR}/src/ops/${op}/cpu/${op}_cpu.c)
    endif()
    list(APPEND sources ${source})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# tegula_op_kernels(<portable> <sm80> <sm90>): the .cu files of the ops, of subfolders too; those that end in _sm80 or _sm90 are for that
# entry alone. The entry sm80 has the portable ones beside its own.
function(tegula_op_kernels portable sm80 sm90)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*.cu)
  foreach(entry IN ITEMS sm80 sm90)
    set(own ${all})
    list(FILTER own INCLUDE REGEX "_${entry}\\.cu$")
    set(${${entry}} ${own} PARENT_SCOPE)
  endforeach()
  list(FILTER all EXCLUDE REGEX "_sm[89]0\\.cu$")
  set(${portable} ${all} PARENT_SCOPE)
endfunction()

# Writes OUTPUT: the commit of SOURCE's tree as a macro, "-dirty" behind it if a tracked file
# differs. Results and documents do not count: they are what measuring writes. Runs at every build;
# the file changes only when its content does.
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(
    COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    execute_process(
      COMMAND ${GIT} status --porcelain --untracked-files=no -- . :!bench/results :!docs
      WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes)
    set(commit ${head})
    if(NOT "${changes}" STREQUAL "")
      string(APPEND commit -dirty)
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define TGI_BUILD_COMMIT \"@commit@\"\n" @ONLY)

# Completions of turnlock for fish.

function __turnlock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l reply (command turnlock __complete fish -- $words "$current" 2>/dev/null)
    switch "$reply[1]"
        case 'command *'
            set -l first (string replace 'command ' '' -- $reply[1])
            set -l before
            if test (count $words) -gt $first
                set before (string escape -- $words[(math $first + 1)..-1])
            end
            complete -C (string join ' ' -- $before "$current")
        case '*'
            printf '%s\n' $reply[2..-1]
    end
end

complete -c turnlock -f -a '(__turnlock_complete)'

package bench

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figure is how one number grows with the size of a case.
type figure struct {
	file    string
	caption string
	part    string
	value   string
	x, y    string
	peers   []string
	linear  bool // y is no logarithm
}

var figures = []figure{
	{"hot", "Goroutines of one process on one key", "hot", "handovers_per_s", "goroutines", "hand-overs/s",
		[]string{ours, strict, fairPeer, readme, redsyncName + ", every 5 ms", bsm + ", every 5 ms"}, false},
	{"keys", "Keys at once, a goroutine for each", "keys", "pairs_per_s", "keys", "pairs/s",
		[]string{ours, floor, floorRueidi, fairPeer, bsm, redsyncName}, false},
	{"line", "Waiters in line, each a Client of its own", "line", "server_us", "waiters", "server CPU µs/hand-over",
		[]string{ours, fairPeer}, false},
	{"held", "Leases held: requests", "held", "requests_per_s", "leases", "renewal requests/s",
		[]string{ours, readme}, false},
	{"memory", "Leases held: memory", "held", "bytes", "leases", "bytes/lease", []string{ours, readme}, false},
	{"nodes", "Servers of a quorum", "redlock free", "p50_us", "servers", "free lock, p50 µs",
		[]string{"fencelock on a quorum", "redsync on a quorum", quorumFloor}, true},
}

// palette is told apart by people who see colours differently too.
var palette = []color.RGBA{
	{0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x72, 0xb2, 0xff}, {0x00, 0x9e, 0x73, 0xff},
	{0xcc, 0x79, 0xa7, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x55, 0x55, 0x55, 0xff},
}

var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{},
	draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{},
}

// draw writes the figure as SVG into dir; false if there is nothing to draw.
func (f figure) draw(rs results, dir string) (bool, error) {
	rs = rs.part(f.part, 0)
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = f.x, f.y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizesOf(rs.sizes())
	if f.linear {
		p.X.Scale = plot.LinearScale{}
		p.Y.Min = 0
	} else {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powersOfTen{}
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs = true, -vg.Points(6), -vg.Points(6)
	drawn := 0
	for i, peer := range f.peers {
		var points plotter.XYs
		for _, size := range rs.sizes() {
			if y := rs.part(f.part, size).value(peer, f.value); y > 0 {
				points = append(points, plotter.XY{X: float64(size), Y: y})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return false, err
		}
		line.Color, line.Width = palette[i], vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = palette[i], glyphs[i], vg.Points(3)
		p.Add(line, dots)
		p.Legend.Add(peer, line, dots)
		drawn++
	}
	if drawn == 0 || len(rs.sizes()) < 2 {
		return false, nil
	}
	if !f.linear { // the legend needs room that no line crosses
		p.Y.Max *= 30
		p.Y.Min /= 1.5
	} else {
		p.Y.Max *= 1.5
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	return true, p.Save(14*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, f.file+".svg"))
}

// powersOfTen marks them, and the steps between without a label.
type powersOfTen struct{}

func (powersOfTen) Ticks(from, to float64) []plot.Tick {
	all := plot.LogTicks{Prec: -1}.Ticks(from, to)
	for i, t := range all {
		if t.Label != "" {
			all[i].Label = short(t.Value)
		}
	}
	return all
}

// sizesOf marks the sizes that were measured.
type sizesOf []int

func (s sizesOf) Ticks(float64, float64) (all []plot.Tick) {
	for _, size := range s {
		all = append(all, plot.Tick{Value: float64(size), Label: fmt.Sprint(size)})
	}
	return all
}
